"""Airflow Variables in memory, for the tests of one process."""

from __future__ import annotations

from airflow_provider_loanauth.auth import login_variables


class Variables(dict):
    """The texts of Variables, by key, and their descriptions."""

    def __init__(self):
        super().__init__()
        self.descriptions = {}
        self.reads = self.writes = 0

    def read(self, key):
        self.reads += 1
        return self.get(key)

    def write(self, key, text, description):
        self.writes += 1
        self[key] = text
        self.descriptions[key] = description

    def delete(self, key):
        self.pop(key, None)

    def keys_with(self, prefix):
        return [key for key in self if key.startswith(prefix)]


class NoVariables(Variables):
    """There is no database."""

    def read(self, key):
        raise RuntimeError("no database")

    write = delete = keys_with = read


def use(variables, monkeypatch):
    for name, function in (
        ("read_variable", variables.read),
        ("write_variable", variables.write),
        ("delete_variable", variables.delete),
        ("list_variables", variables.keys_with),
    ):
        monkeypatch.setattr(login_variables, name, function)
    return variables
