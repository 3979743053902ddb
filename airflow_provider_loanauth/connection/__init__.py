"""Reading and checking an Airflow Connection: methods, settings, address and proxy."""
