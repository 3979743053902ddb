"""Authentication for a loan pricing service in Apache Airflow. This file holds the version and imports nothing."""

__version__ = "0.1.0"
