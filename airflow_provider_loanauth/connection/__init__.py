"""An Airflow Connection, read and checked: settings, fields, address and form."""
