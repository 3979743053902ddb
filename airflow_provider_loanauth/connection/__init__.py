"""Reading and checking an Airflow Connection: methods, settings, fields, address and form."""
