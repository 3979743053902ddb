"""End-to-end tests on real Airflow installations."""
