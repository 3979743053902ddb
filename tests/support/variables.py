"""Airflow Variables in memory, for the tests of one process."""

from airflow_provider_loanauth.login import variables as login_variables


class Variables(dict):
    """The texts of Variables, by key, and their descriptions. Each use raises ``error``, if there is one."""

    def __init__(self, error=None):
        super().__init__()
        self.error = error
        self.descriptions = {}
        self.reads = self.writes = 0

    def read(self, key):
        self.reads += 1
        self._fail()
        return self.get(key)

    def write(self, key, text, description):
        self.writes += 1
        self._fail()
        self[key] = text
        self.descriptions[key] = description

    def delete(self, key):
        self._fail()
        self.pop(key, None)

    def keys_with(self, prefix):
        self._fail()
        return [key for key in self if key.startswith(prefix)]

    def _fail(self):
        if self.error is not None:
            raise self.error


def use(variables, monkeypatch):
    for name, function in (
        ("read_variable", variables.read),
        ("write_variable", variables.write),
        ("delete_variable", variables.delete),
        ("list_variables", variables.keys_with),
    ):
        monkeypatch.setattr(login_variables, name, function)
    return variables
