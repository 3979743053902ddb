"""``python -m airflow_provider_loanauth``: the commands."""

from airflow_provider_loanauth.cli import main

if __name__ == "__main__":
    main()
