"""Authentication to a loan pricing service in Apache Airflow."""

__version__ = "0.1.0.dev0"
