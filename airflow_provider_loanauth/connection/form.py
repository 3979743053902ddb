"""
The connection form for Airflow 2.11 to 3.1, which asks the hook for it; made from the declaration that newer Airflow
reads by itself. Knows no field by name.

Loads ``wtforms`` only when Airflow asks, and takes from it what is there at that moment: the API server of 3.0 and 3.1
puts stand-ins in its place, which say what to draw and draw nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

#: What the form of Airflow 2.11 shows, and takes back, in place of a stored secret that was not typed again.
#: ``SENSITIVE_FIELD_PLACEHOLDER`` of its ``airflow.www.views``.
KEPT_SECRET = "RATHER_LONG_SENSITIVE_FIELD_PLACEHOLDER"  # noqa: S105 - stands for a secret


def form_widgets(conn_fields: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """
    Make the widgets of a connection form.

    :param conn_fields: fields as ``conn-fields`` of the provider's metadata declares them
    :return: unbound fields of ``wtforms``, by name, in the same order
    """
    import wtforms  # noqa: PLC0415 - no task needs it, and it may be replaced (see above)
    from wtforms.validators import Optional, any_of  # noqa: PLC0415 - as above

    widgets = {}
    for name, declared in conn_fields.items():
        schema = declared["schema"]
        options: dict[str, Any] = {"description": declared["description"]}
        # First of the validators, so that an empty field is never examined further.
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
        if _is_drawn(field):
            options |= _drawing(schema, kind)
        widgets[name] = field(declared["label"], validators=validators, **options)
    return widgets


def form_behaviour(ui_field_behaviour: Mapping[str, Any]) -> dict[str, Any]:
    """
    Spell ``ui-field-behaviour`` as hooks do.

    :param ui_field_behaviour: as in the provider's metadata
    """
    return {key.replace("-", "_"): value for key, value in ui_field_behaviour.items()}


def _is_drawn(field: Any) -> bool:
    """Tell whether a field draws itself (Airflow 2.11), or is a stand-in (the API server of 3.0 and 3.1)."""
    from wtforms.fields import Field  # noqa: PLC0415 - as above

    return isinstance(field, type) and isinstance(Field, type) and issubclass(field, Field)


def _drawing(schema: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return how the web server of Airflow 2.11 draws a field, and what it makes of an untouched secret."""
    drawing: dict[str, Any] = {}
    if schema.get("format") == "password":
        drawing["filters"] = [_kept_unless_typed]
    if "enum" in schema:
        drawing["widget"] = _DropDown({choice: choice for choice in schema["enum"]} | schema.get("values_display", {}))
    elif kind == "number":
        drawing["render_kw"] = {"class": "form-control"}
    elif kind != "boolean":
        try:
            from flask_appbuilder.fieldwidgets import (  # noqa: PLC0415 - only its web server has it
                BS3PasswordFieldWidget,
                BS3TextFieldWidget,
            )
        except ImportError:
            return drawing
        drawing["widget"] = BS3PasswordFieldWidget() if "filters" in drawing else BS3TextFieldWidget()
    return drawing


def _kept_unless_typed(value: str | None) -> str:
    """
    Answer an empty password field with what makes Airflow 2.11 keep the stored value.

    By itself it takes an empty field for a wish to delete, though it never sends a stored secret to the browser.
    """
    return value or KEPT_SECRET


class _DropDown:
    """
    Draws a text field as a drop-down: Airflow allows no other class of field.

    :param choices: what to show, by value
    """

    def __init__(self, choices: Mapping[str, str]) -> None:
        self.choices = {"": "", **choices}

    def __call__(self, field: Any, **options: Any) -> Any:
        from markupsafe import Markup  # noqa: PLC0415 - as above
        from wtforms.widgets import html_params  # noqa: PLC0415 - as above

        attributes = {"id": field.id, "name": options.pop("name_", field.name), **options, "class": "form-control"}
        drawn = Markup("").join(
            Markup("<option {}>{}</option>").format(
                Markup(html_params(value=value, selected=value == (field.data or ""))),  # noqa: S704 - it escapes
                shown,
            )
            for value, shown in self.choices.items()
        )
        return Markup("<select {}>{}</select>").format(Markup(html_params(**attributes)), drawn)  # noqa: S704 - as above
