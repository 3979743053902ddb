"""
The connection form for Airflow 2.11 to 3.1, which gets it from the hook. The form is made from the declaration in
``get_provider_info.py``. Later versions of Airflow read that declaration themselves.

``wtforms`` is imported only when Airflow needs the form. The API server of 3.0 and 3.1 replaces its classes with
stand-ins, which describe a field and cannot render it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The form of Airflow 2.11 sends this in place of a stored secret that was not entered again. It is
#: ``SENSITIVE_FIELD_PLACEHOLDER`` in ``airflow.www.views``.
UNCHANGED_SECRET = "RATHER_LONG_SENSITIVE_FIELD_PLACEHOLDER"  # noqa: S105 - stands for a secret


def form_widgets(conn_fields: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the unbound fields of ``wtforms`` for ``conn-fields`` of the provider's metadata, in the same order."""
    import wtforms
    from wtforms.validators import Optional, any_of

    widgets = {}
    for name, declared in conn_fields.items():
        schema = declared["schema"]
        options: dict[str, Any] = {"description": declared["description"]}
        # Optional comes first, so that the other validators skip an empty field.
        validators: list[Any] = [Optional()]
        (kind,) = {*schema["type"]} - {"null"}
        if kind == "boolean":
            field = wtforms.BooleanField
        elif kind == "number":
            field = wtforms.IntegerField
        elif schema.get("format") == "password":
            field = wtforms.PasswordField
        else:
            field = wtforms.StringField
        if "enum" in schema:
            validators.append(any_of(schema["enum"]))
        if _can_render(field):
            options |= _render_options(schema, kind)
        widgets[name] = field(declared["label"], validators=validators, **options)
    return widgets


def form_behaviour(ui_field_behaviour: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``ui-field-behaviour`` of the provider's metadata with the key names that hooks use."""
    return {key.replace("-", "_"): value for key, value in ui_field_behaviour.items()}


def _can_render(field: Any) -> bool:
    """Return whether a field can be rendered (Airflow 2.11); the API server of 3.0 and 3.1 has stand-ins."""
    from wtforms.fields import Field

    return isinstance(field, type) and isinstance(Field, type) and issubclass(field, Field)


def _render_options(schema: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return rendering options for the web server of Airflow 2.11, and the filter for a secret left empty."""
    drawing: dict[str, Any] = {}
    if schema.get("format") == "password":
        drawing["filters"] = [_keep_if_empty]
    if "enum" in schema:
        drawing["widget"] = _DropDown({choice: choice for choice in schema["enum"]} | schema.get("values_display", {}))
    elif kind == "number":
        drawing["render_kw"] = {"class": "form-control"}
    elif kind != "boolean":
        try:
            from flask_appbuilder.fieldwidgets import BS3PasswordFieldWidget, BS3TextFieldWidget
        except ImportError:
            return drawing
        drawing["widget"] = BS3PasswordFieldWidget() if "filters" in drawing else BS3TextFieldWidget()
    return drawing


def _keep_if_empty(value: str | None) -> str:
    """Keep the stored secret, which Airflow 2.11 never sends to the browser, and would delete."""
    return value or UNCHANGED_SECRET


class _DropDown:
    """Renders a text field as a drop-down, because Airflow does not allow a select field."""

    def __init__(self, choices: Mapping[str, str]) -> None:
        self.choices = {"": "", **choices}

    def __call__(self, field: Any, **options: Any) -> Any:
        from markupsafe import Markup
        from wtforms.widgets import html_params

        attributes = {"id": field.id, "name": options.pop("name_", field.name), **options, "class": "form-control"}
        drawn = Markup("").join(
            Markup("<option {}>{}</option>").format(
                Markup(html_params(value=value, selected=value == (field.data or ""))),  # noqa: S704 - it escapes
                shown,
            )
            for value, shown in self.choices.items()
        )
        return Markup("<select {}>{}</select>").format(Markup(html_params(**attributes)), drawn)  # noqa: S704 - it escapes
