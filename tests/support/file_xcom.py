"""A custom XCom backend, as users write them: each value is in a file, and the metadata database has its name."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path

try:  # 3.0
    from airflow.sdk.bases.xcom import BaseXCom
except ImportError:  # 2.11
    from airflow.models.xcom import BaseXCom
from airflow.utils.json import XComDecoder, XComEncoder

PREFIX = "file-xcom:"


class FileXCom(BaseXCom):
    """Stores values in the directory ``FILE_XCOM``."""

    @staticmethod
    def serialize_value(value, **_):
        name = uuid.uuid4().hex
        Path(os.environ["FILE_XCOM"], name).write_text(json.dumps(value, cls=XComEncoder))
        return BaseXCom.serialize_value(PREFIX + name)

    @staticmethod
    def deserialize_value(result):
        name = BaseXCom.deserialize_value(result).removeprefix(PREFIX)
        return json.loads(Path(os.environ["FILE_XCOM"], name).read_text(), cls=XComDecoder)

    @classmethod
    def purge(cls, xcom, *_):
        if isinstance(xcom.value, str):
            Path(os.environ["FILE_XCOM"], xcom.value.removeprefix(PREFIX)).unlink()
