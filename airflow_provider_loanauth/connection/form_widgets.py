"""The form for Airflow 2.11 to 3.1, made from ``get_provider_info.py``, which later versions read themselves."""

from __future__ import annotations

from typing import Any

from airflow_provider_loanauth.get_provider_info import CONN_FIELDS

#: The form of Airflow 2.11 sends this in place of a stored secret that was not entered again. It is
#: ``SENSITIVE_FIELD_PLACEHOLDER`` in ``airflow.www.views``.
UNCHANGED_SECRET = "RATHER_LONG_SENSITIVE_FIELD_PLACEHOLDER"  # noqa: S105 - stands for a secret


def form_widgets() -> dict[str, Any]:
    """Return the unbound fields of ``wtforms`` for the fields of the provider's metadata, in the same order."""
    import wtforms
    from wtforms.validators import Optional, any_of

    kinds = {"boolean": wtforms.BooleanField, "number": wtforms.IntegerField, "password": wtforms.PasswordField}
    widgets = {}
    for name, declared in CONN_FIELDS.items():
        schema = declared["schema"]
        kind = schema.get("format", schema["type"][0])
        field = kinds.get(kind, wtforms.StringField)
        # Optional comes first, so that the other validator skips an empty field.
        validators = [Optional(), *([any_of(schema["enum"])] if "enum" in schema else [])]
        options = {"description": declared["description"], "validators": validators}
        # The API server of 3.0 and 3.1 has stand-ins, which describe a field and accept no other options.
        if hasattr(field, "populate_obj"):
            if kind != "boolean":
                options["render_kw"] = {"class": "form-control", "placeholder": declared["label"]}
            if kind == "password":
                # Keep the stored secret, which Airflow 2.11 never sends to the browser, and would delete.
                options["filters"] = [lambda value: value or UNCHANGED_SECRET]
        widgets[name] = field(declared["label"], **options)
    return widgets
