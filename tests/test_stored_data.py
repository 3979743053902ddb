"""
What earlier code has stored in Airflow's database: XCom values (format 1), pickles of Airflow 2.11, deferred triggers.

The literals were made under Airflow 2.11 and 3.3 with the Fernet key of the tests: by the code before the package was
restructured, and those with a task by the first code that stored the issuing task. They must be readable as long as
format 1 is supported: never make them again.
"""

from __future__ import annotations

import base64
import json
import pickle
import pkgutil
import time
from datetime import datetime, timezone
from types import SimpleNamespace

import pytest
import requests

from airflow_provider_loanauth._compat import AirflowSensorTimeout
from airflow_provider_loanauth.auth import LoanAuth
from airflow_provider_loanauth.credentials import AccessToken, ApiSecret
from airflow_provider_loanauth.sensors.loanauth import LoanAuthSensor
from airflow_provider_loanauth.triggers.loanauth import ServiceReadyTrigger
from tests.support.airflow_names import TaskDeferred, serde
from tests.support.pricing_fixtures import loan

ISSUED_AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
#: Every credential that was stored: its class and attributes, XCom JSON and pickle.
CREDENTIALS = {
    "Airflow 2.11, los": SimpleNamespace(
        type=AccessToken,
        attributes={
            "method": "los",
            "conn_id": "loanauth_default",
            "issued_at": ISSUED_AT,
            "expires_at": datetime(2026, 1, 2, 4, 4, 4, tzinfo=timezone.utc),
            "value": "made-up.token.value",
        },
        xcom=(
            '{"__classname__": "airflow_provider_loanauth.credentials.AccessToken", "__version__": 1, "__data__": '
            '{"method": "los", "conn_id": "loanauth_default", "issued_at": "2026-01-02T03:04:05+00:00", "expires_a'
            't": "2026-01-02T04:04:04+00:00", "sealed": "gAAAAABrAivQlU--eoj_7n9dpgH5qDg4uhE5vpFTnhDqom66KsARlVnbj'
            "p-1K2vq-X2x0SJBpWA0mLXPgudvVz8_ts0kftExdhlANvVTGU55Vn78G5AHMCy2NKGBoghqdujw7SlFQ6s2LATPBshdVgiBxlvJdg"
            'ehsw=="}}'
        ),
        pickle=(
            "gASVgAEAAAAAAACMJWFpcmZsb3dfcHJvdmlkZXJfbG9hbmF1dGguY3JlZGVudGlhbHOUjAlfcmVzdG9yZWSUk5RoAIwLQWNjZXNzV"
            "G9rZW6Uk5R9lCiMBm1ldGhvZJSMA2xvc5SMB2Nvbm5faWSUjBBsb2FuYXV0aF9kZWZhdWx0lIwJaXNzdWVkX2F0lIwZMjAyNi0wMS"
            "0wMlQwMzowNDowNSswMDowMJSMCmV4cGlyZXNfYXSUjBkyMDI2LTAxLTAyVDA0OjA0OjA0KzAwOjAwlIwGc2VhbGVklIykZ0FBQUF"
            "BQnJBaXZRbFUtLWVval83bjlkcGdINXFEZzR1aEU1dnBGVG5oRHFvbTY2S3NBUmxWbmJqcC0xSzJ2cS1YMngwU0pCcFdBMG1MWFBn"
            "dWR2Vno4X3RzMGtmdEV4ZGhsQU52VlRHVTU1Vm43OEc1QUhNQ3kyTktHQm9naHFkdWp3N1NsRlE2czJMQVRQQnNoZFZnaUJ4bHZKZ"
            "GdlaHN3PT2UdUsBh5RSlC4="
        ),
    ),
    "Airflow 2.11, jwt": SimpleNamespace(
        type=AccessToken,
        attributes={
            "method": "jwt",
            "conn_id": "lender-ü",
            "issued_at": ISSUED_AT.replace(microsecond=678901),
            "expires_at": None,
            "value": "made-up-opaque-token",
        },
        xcom=(
            '{"__classname__": "airflow_provider_loanauth.credentials.AccessToken", "__version__": 1, "__data__": '
            '{"method": "jwt", "conn_id": "lender-\\u00fc", "issued_at": "2026-01-02T03:04:05.678901+00:00", "expir'
            'es_at": null, "sealed": "gAAAAABrAivQpq-h8n9eTsU0PaU8qFXHZJs9LDrLLxONp1NPBnwI_6pVoQ5vg4V7B6YC7CKqRyat'
            '55BcDRA9iXHHAih3xm4rRia48z8lZJXTjRErwlqEcEndZIw5IKotC1VIKT8pFUdMia8qubKEms5UVLqKJA9lmw=="}}'
        ),
        pickle=(
            "gASVZQEAAAAAAACMJWFpcmZsb3dfcHJvdmlkZXJfbG9hbmF1dGguY3JlZGVudGlhbHOUjAlfcmVzdG9yZWSUk5RoAIwLQWNjZXNzV"
            "G9rZW6Uk5R9lCiMBm1ldGhvZJSMA2p3dJSMB2Nvbm5faWSUjAlsZW5kZXItw7yUjAlpc3N1ZWRfYXSUjCAyMDI2LTAxLTAyVDAzOj"
            "A0OjA1LjY3ODkwMSswMDowMJSMCmV4cGlyZXNfYXSUTowGc2VhbGVklIykZ0FBQUFBQnJBaXZRcHEtaDhuOWVUc1UwUGFVOHFGWEh"
            "aSnM5TERyTEx4T05wMU5QQm53SV82cFZvUTV2ZzRWN0I2WUM3Q0txUnlhdDU1QmNEUkE5aVhISEFpaDN4bTRyUmlhNDh6OGxaSlhU"
            "alJFcndscUVjRW5kWkl3NUlLb3RDMVZJS1Q4cEZVZE1pYThxdWJLRW1zNVVWTHFLSkE5bG13PT2UdUsBh5RSlC4="
        ),
    ),
    "Airflow 2.11, ppe": SimpleNamespace(
        type=ApiSecret,
        attributes={
            "method": "ppe",
            "conn_id": "loanauth_ppe",
            "issued_at": ISSUED_AT,
            "expires_at": None,
            "value": "bWFkZS11cC1zZWNyZXQ=",
            "valid": 1767323045000,
        },
        xcom=(
            '{"__classname__": "airflow_provider_loanauth.credentials.ApiSecret", "__version__": 1, "__data__": {"'
            'method": "ppe", "conn_id": "loanauth_ppe", "issued_at": "2026-01-02T03:04:05+00:00", "expires_at": nu'
            'll, "sealed": "gAAAAABrAivQF0lN4uGACzw3MdyP6QfQYMJ03m9czQ6ted0zWFVpfOOrMAUlk_ZG-8FtNVTrXDDG1LxgJO_tLp'
            'rExyMFJt3mUCezsG106i5l7PzT7PCWWxkljTFQ11qRLdASQhMVi5AfZZtnvFfp7RNOngH9DxSSyAfe37ZQv9QoocF8Oru9iiI="}}'
        ),
        pickle=(
            "gASVcwEAAAAAAACMJWFpcmZsb3dfcHJvdmlkZXJfbG9hbmF1dGguY3JlZGVudGlhbHOUjAlfcmVzdG9yZWSUk5RoAIwJQXBpU2Vjc"
            "mV0lJOUfZQojAZtZXRob2SUjANwcGWUjAdjb25uX2lklIwMbG9hbmF1dGhfcHBllIwJaXNzdWVkX2F0lIwZMjAyNi0wMS0wMlQwMz"
            "owNDowNSswMDowMJSMCmV4cGlyZXNfYXSUTowGc2VhbGVklIy4Z0FBQUFBQnJBaXZRRjBsTjR1R0FDenczTWR5UDZRZlFZTUowM20"
            "5Y3pRNnRlZDB6V0ZWcGZPT3JNQVVsa19aRy04RnROVlRyWERERzFMeGdKT190THByRXh5TUZKdDNtVUNlenNHMTA2aTVsN1B6VDdQ"
            "Q1dXeGtsalRGUTExcVJMZEFTUWhNVmk1QWZaWnRudkZmcDdSTk9uZ0g5RHhTU3lBZmUzN1pRdjlRb29jRjhPcnU5aWlJPZR1SwGHl"
            "FKULg=="
        ),
    ),
    "Airflow 3.3, los": SimpleNamespace(
        type=AccessToken,
        attributes={
            "method": "los",
            "conn_id": "loanauth_default",
            "issued_at": ISSUED_AT,
            "expires_at": datetime(2026, 1, 2, 4, 4, 4, tzinfo=timezone.utc),
            "value": "made-up.token.value",
        },
        xcom=(
            '{"__classname__": "airflow_provider_loanauth.credentials.AccessToken", "__version__": 1, "__data__": '
            '{"method": "los", "conn_id": "loanauth_default", "issued_at": "2026-01-02T03:04:05+00:00", "expires_a'
            't": "2026-01-02T04:04:04+00:00", "sealed": "gAAAAABrAivS-SeQy9cgF693gHlx3p2RN7wyDdub6kj3NXfUSRN-gDPus'
            "V1Ls5wIh_Xyewxpn0N6PQHL8cwWfsqlNAtLdeLE4JfPYGEAcM_xJioO9tWEtELsM2Nz8kZZ4gPIHqN57ZrX1s9ISte6N2z-TPhYFJ"
            'Fo3A=="}}'
        ),
        pickle=(
            "gASVgAEAAAAAAACMJWFpcmZsb3dfcHJvdmlkZXJfbG9hbmF1dGguY3JlZGVudGlhbHOUjAlfcmVzdG9yZWSUk5RoAIwLQWNjZXNzV"
            "G9rZW6Uk5R9lCiMBm1ldGhvZJSMA2xvc5SMB2Nvbm5faWSUjBBsb2FuYXV0aF9kZWZhdWx0lIwJaXNzdWVkX2F0lIwZMjAyNi0wMS"
            "0wMlQwMzowNDowNSswMDowMJSMCmV4cGlyZXNfYXSUjBkyMDI2LTAxLTAyVDA0OjA0OjA0KzAwOjAwlIwGc2VhbGVklIykZ0FBQUF"
            "BQnJBaXZTLVNlUXk5Y2dGNjkzZ0hseDNwMlJON3d5RGR1YjZrajNOWGZVU1JOLWdEUHVzVjFMczV3SWhfWHlld3hwbjBONlBRSEw4"
            "Y3dXZnNxbE5BdExkZUxFNEpmUFlHRUFjTV94SmlvTzl0V0V0RUxzTTJOejhrWlo0Z1BJSHFONTdaclgxczlJU3RlNk4yei1UUGhZR"
            "kpGbzNBPT2UdUsBh5RSlC4="
        ),
    ),
    "Airflow 3.3, jwt": SimpleNamespace(
        type=AccessToken,
        attributes={
            "method": "jwt",
            "conn_id": "lender-ü",
            "issued_at": ISSUED_AT.replace(microsecond=678901),
            "expires_at": None,
            "value": "made-up-opaque-token",
        },
        xcom=(
            '{"__classname__": "airflow_provider_loanauth.credentials.AccessToken", "__version__": 1, "__data__": '
            '{"method": "jwt", "conn_id": "lender-\\u00fc", "issued_at": "2026-01-02T03:04:05.678901+00:00", "expir'
            'es_at": null, "sealed": "gAAAAABrAivSLTWZJX42F4m_PlGpGgcNFnQHsinOYKkGNd8_mzSnPUB1irmerVmdWyf7knkG4gXp'
            'qzQvzzZJ0r5Ic0UnJ7PBIM5Msa5FSY3GIt8cFw3TYtGx_N0C_P8KZjFG--moUvySO5jzqhP5A5yhATYgavZ-tA=="}}'
        ),
        pickle=(
            "gASVZQEAAAAAAACMJWFpcmZsb3dfcHJvdmlkZXJfbG9hbmF1dGguY3JlZGVudGlhbHOUjAlfcmVzdG9yZWSUk5RoAIwLQWNjZXNzV"
            "G9rZW6Uk5R9lCiMBm1ldGhvZJSMA2p3dJSMB2Nvbm5faWSUjAlsZW5kZXItw7yUjAlpc3N1ZWRfYXSUjCAyMDI2LTAxLTAyVDAzOj"
            "A0OjA1LjY3ODkwMSswMDowMJSMCmV4cGlyZXNfYXSUTowGc2VhbGVklIykZ0FBQUFBQnJBaXZTTFRXWkpYNDJGNG1fUGxHcEdnY05"
            "GblFIc2luT1lLa0dOZDhfbXpTblBVQjFpcm1lclZtZFd5ZjdrbmtHNGdYcHF6UXZ6elpKMHI1SWMwVW5KN1BCSU01TXNhNUZTWTNH"
            "SXQ4Y0Z3M1RZdEd4X04wQ19QOEtaakZHLS1tb1V2eVNPNWp6cWhQNUE1eWhBVFlnYXZaLXRBPT2UdUsBh5RSlC4="
        ),
    ),
    "Airflow 3.3, ppe": SimpleNamespace(
        type=ApiSecret,
        attributes={
            "method": "ppe",
            "conn_id": "loanauth_ppe",
            "issued_at": ISSUED_AT,
            "expires_at": None,
            "value": "bWFkZS11cC1zZWNyZXQ=",
            "valid": 1767323045000,
        },
        xcom=(
            '{"__classname__": "airflow_provider_loanauth.credentials.ApiSecret", "__version__": 1, "__data__": {"'
            'method": "ppe", "conn_id": "loanauth_ppe", "issued_at": "2026-01-02T03:04:05+00:00", "expires_at": nu'
            'll, "sealed": "gAAAAABrAivSJP95hDUKoF_4xtvu5i6fh30ndUijQvyPacQBg5y7nzIwiCwsoM4d6_iqP53K2T6MT9bRI5L3lB'
            'Q_sPa1yRxmb0uyndtavwbUNQ5gq-kmIX8eZtCKMTClw0_xG2kqZE-jOQZqIMhGEwd-Pc5iWeW72UbRbhauvXtYIIcIhsqV7jg="}}'
        ),
        pickle=(
            "gASVcwEAAAAAAACMJWFpcmZsb3dfcHJvdmlkZXJfbG9hbmF1dGguY3JlZGVudGlhbHOUjAlfcmVzdG9yZWSUk5RoAIwJQXBpU2Vjc"
            "mV0lJOUfZQojAZtZXRob2SUjANwcGWUjAdjb25uX2lklIwMbG9hbmF1dGhfcHBllIwJaXNzdWVkX2F0lIwZMjAyNi0wMS0wMlQwMz"
            "owNDowNSswMDowMJSMCmV4cGlyZXNfYXSUTowGc2VhbGVklIy4Z0FBQUFBQnJBaXZTSlA5NWhEVUtvRl80eHR2dTVpNmZoMzBuZFV"
            "palF2eVBhY1FCZzV5N256SXdpQ3dzb000ZDZfaXFQNTNLMlQ2TVQ5YlJJNUwzbEJRX3NQYTF5UnhtYjB1eW5kdGF2d2JVTlE1Z3Et"
            "a21JWDhlWnRDS01UQ2x3MF94RzJrcVpFLWpPUVpxSU1oR0V3ZC1QYzVpV2VXNzJVYlJiaGF1dlh0WUlJY0loc3FWN2pnPZR1SwGHl"
            "FKULg=="
        ),
    ),
    "Airflow 2.11, los, with its task": SimpleNamespace(
        type=AccessToken,
        attributes={
            "method": "los",
            "conn_id": "loanauth_default",
            "issued_at": ISSUED_AT,
            "expires_at": datetime(2026, 1, 2, 4, 4, 4, tzinfo=timezone.utc),
            "value": "made-up.token.value",
            "task": ("nightly", "scheduled__2026-01-02T03:00:00+00:00", "authenticate", -1),
        },
        xcom=(
            '{"__classname__": "airflow_provider_loanauth.credentials.AccessToken", "__version__": 1, "__data__":'
            ' {"method": "los", "conn_id": "loanauth_default", "issued_at": "2026-01-02T03:04:05+00:00", "expires'
            '_at": "2026-01-02T04:04:04+00:00", "sealed": "gAAAAABrApdWn5XxEO2pfklxcIXybA0IPasFSYgbW62xzqzjbu5WyK'
            "V0aRRK0x4pDSSlqA2wl4Vdk3JrjQFya3k8tZQS_KxQdVyI1ouQ9ZCGsNAHujYrWi-k8SClWYxRnyadEX3JrFvkRfnC2lGCIkbC_Q"
            'ykdvH54w==", "task": {"dag_id": "nightly", "run_id": "scheduled__2026-01-02T03:00:00+00:00", "task_i'
            'd": "authenticate", "map_index": -1}}}'
        ),
        pickle=(
            "gASV+AEAAAAAAACMJWFpcmZsb3dfcHJvdmlkZXJfbG9hbmF1dGguY3JlZGVudGlhbHOUjAlfcmVzdG9yZWSUk5RoAIwLQWNjZXNz"
            "VG9rZW6Uk5R9lCiMBm1ldGhvZJSMA2xvc5SMB2Nvbm5faWSUjBBsb2FuYXV0aF9kZWZhdWx0lIwJaXNzdWVkX2F0lIwZMjAyNi0w"
            "MS0wMlQwMzowNDowNSswMDowMJSMCmV4cGlyZXNfYXSUjBkyMDI2LTAxLTAyVDA0OjA0OjA0KzAwOjAwlIwGc2VhbGVklIykZ0FB"
            "QUFBQnJBcGRXbjVYeEVPMnBma2x4Y0lYeWJBMElQYXNGU1lnYlc2Mnh6cXpqYnU1V3lLVjBhUlJLMHg0cERTU2xxQTJ3bDRWZGsz"
            "SnJqUUZ5YTNrOHRaUVNfS3hRZFZ5STFvdVE5WkNHc05BSHVqWXJXaS1rOFNDbFdZeFJueWFkRVgzSnJGdmtSZm5DMmxHQ0lrYkNf"
            "UXlrZHZINTR3PT2UjAR0YXNrlH2UKIwGZGFnX2lklIwHbmlnaHRseZSMBnJ1bl9pZJSMJHNjaGVkdWxlZF9fMjAyNi0wMS0wMlQw"
            "MzowMDowMCswMDowMJSMB3Rhc2tfaWSUjAxhdXRoZW50aWNhdGWUjAltYXBfaW5kZXiUSv////91dUsBh5RSlC4="
        ),
    ),
    "Airflow 2.11, ppe, with its mapped task": SimpleNamespace(
        type=ApiSecret,
        attributes={
            "method": "ppe",
            "conn_id": "loanauth_ppe",
            "issued_at": ISSUED_AT,
            "expires_at": None,
            "value": "bWFkZS11cC1zZWNyZXQ=",
            "valid": 1767323045000,
            "task": ("nightly-ü", "manual__1", "group.authenticate", 3),
        },
        xcom=(
            '{"__classname__": "airflow_provider_loanauth.credentials.ApiSecret", "__version__": 1, "__data__": {'
            '"method": "ppe", "conn_id": "loanauth_ppe", "issued_at": "2026-01-02T03:04:05+00:00", "expires_at": '
            'null, "sealed": "gAAAAABrApdWGnQ4onCEyNNkSfyD7XBlGXo_gsV-C_omwSPp2XUs8tKdYaqD9kbyQD34l2EqPMBAEACG_6R'
            "VCos3vUbOt97JUVbIg_-gQlvaHTxocqHwYgzps1veYeOwA2W89IAmlOTWMKoSoI3Um_ueOLneZLGQ20OJI45pwuM-k2pRv7q0xeM"
            '=", "task": {"dag_id": "nightly-\\u00fc", "run_id": "manual__1", "task_id": "group.authenticate", "ma'
            'p_index": 3}}}'
        ),
        pickle=(
            "gASV1gEAAAAAAACMJWFpcmZsb3dfcHJvdmlkZXJfbG9hbmF1dGguY3JlZGVudGlhbHOUjAlfcmVzdG9yZWSUk5RoAIwJQXBpU2Vj"
            "cmV0lJOUfZQojAZtZXRob2SUjANwcGWUjAdjb25uX2lklIwMbG9hbmF1dGhfcHBllIwJaXNzdWVkX2F0lIwZMjAyNi0wMS0wMlQw"
            "MzowNDowNSswMDowMJSMCmV4cGlyZXNfYXSUTowGc2VhbGVklIy4Z0FBQUFBQnJBcGRXR25RNG9uQ0V5Tk5rU2Z5RDdYQmxHWG9f"
            "Z3NWLUNfb213U1BwMlhVczh0S2RZYXFEOWtieVFEMzRsMkVxUE1CQUVBQ0dfNlJWQ29zM3ZVYk90OTdKVVZiSWdfLWdRbHZhSFR4"
            "b2NxSHdZZ3pwczF2ZVllT3dBMlc4OUlBbWxPVFdNS29Tb0kzVW1fdWVPTG5lWkxHUTIwT0pJNDVwd3VNLWsycFJ2N3EweGVNPZSM"
            "BHRhc2uUfZQojAZkYWdfaWSUjApuaWdodGx5LcO8lIwGcnVuX2lklIwJbWFudWFsX18xlIwHdGFza19pZJSMEmdyb3VwLmF1dGhl"
            "bnRpY2F0ZZSMCW1hcF9pbmRleJRLA3V1SwGHlFKULg=="
        ),
    ),
    "Airflow 3.3, los, with its task": SimpleNamespace(
        type=AccessToken,
        attributes={
            "method": "los",
            "conn_id": "loanauth_default",
            "issued_at": ISSUED_AT,
            "expires_at": datetime(2026, 1, 2, 4, 4, 4, tzinfo=timezone.utc),
            "value": "made-up.token.value",
            "task": ("nightly", "scheduled__2026-01-02T03:00:00+00:00", "authenticate", -1),
        },
        xcom=(
            '{"__classname__": "airflow_provider_loanauth.credentials.AccessToken", "__version__": 1, "__data__":'
            ' {"method": "los", "conn_id": "loanauth_default", "issued_at": "2026-01-02T03:04:05+00:00", "expires'
            '_at": "2026-01-02T04:04:04+00:00", "sealed": "gAAAAABrApdGvf7Cxd2PKqT3PJ1_onJ8oZ_VW4Km5SZ_VcJPorJPfr'
            "79Q471zjQyrJ7fHCV6ZSlhGSJmWh4LEHoE-KjPvQsSeg6h29fSK0_c2iOss_ZYkSUbICZtMtAqA9XIvKwe5NaCs91L2mB6-1cR6d"
            'pQtZ_cGA==", "task": {"dag_id": "nightly", "run_id": "scheduled__2026-01-02T03:00:00+00:00", "task_i'
            'd": "authenticate", "map_index": -1}}}'
        ),
        pickle=(
            "gASV+AEAAAAAAACMJWFpcmZsb3dfcHJvdmlkZXJfbG9hbmF1dGguY3JlZGVudGlhbHOUjAlfcmVzdG9yZWSUk5RoAIwLQWNjZXNz"
            "VG9rZW6Uk5R9lCiMBm1ldGhvZJSMA2xvc5SMB2Nvbm5faWSUjBBsb2FuYXV0aF9kZWZhdWx0lIwJaXNzdWVkX2F0lIwZMjAyNi0w"
            "MS0wMlQwMzowNDowNSswMDowMJSMCmV4cGlyZXNfYXSUjBkyMDI2LTAxLTAyVDA0OjA0OjA0KzAwOjAwlIwGc2VhbGVklIykZ0FB"
            "QUFBQnJBcGRHdmY3Q3hkMlBLcVQzUEoxX29uSjhvWl9WVzRLbTVTWl9WY0pQb3JKUGZyNzlRNDcxempReXJKN2ZIQ1Y2WlNsaEdT"
            "Sm1XaDRMRUhvRS1LalB2UXNTZWc2aDI5ZlNLMF9jMmlPc3NfWllrU1ViSUNadE10QXFBOVhJdkt3ZTVOYUNzOTFMMm1CNi0xY1I2"
            "ZHBRdFpfY0dBPT2UjAR0YXNrlH2UKIwGZGFnX2lklIwHbmlnaHRseZSMBnJ1bl9pZJSMJHNjaGVkdWxlZF9fMjAyNi0wMS0wMlQw"
            "MzowMDowMCswMDowMJSMB3Rhc2tfaWSUjAxhdXRoZW50aWNhdGWUjAltYXBfaW5kZXiUSv////91dUsBh5RSlC4="
        ),
    ),
    "Airflow 3.3, ppe, with its mapped task": SimpleNamespace(
        type=ApiSecret,
        attributes={
            "method": "ppe",
            "conn_id": "loanauth_ppe",
            "issued_at": ISSUED_AT,
            "expires_at": None,
            "value": "bWFkZS11cC1zZWNyZXQ=",
            "valid": 1767323045000,
            "task": ("nightly-ü", "manual__1", "group.authenticate", 3),
        },
        xcom=(
            '{"__classname__": "airflow_provider_loanauth.credentials.ApiSecret", "__version__": 1, "__data__": {'
            '"method": "ppe", "conn_id": "loanauth_ppe", "issued_at": "2026-01-02T03:04:05+00:00", "expires_at": '
            'null, "sealed": "gAAAAABrApdGO0jhDilcNH77e8tN1mOitmLv8sUF8_wUJ7VOqWy4h0GL7Fv1dOUNVrpQ-WtiG654gXv13P_'
            "q2wFtE5XWb1i4PpRk7n3ClcyKCo3H0096XZvWCPkAeY3OKgK4MX7WVz7ftlc4GISWfeH_2wkZNTafv3jMcRJQoZ1hJYEmhBmxnEI"
            '=", "task": {"dag_id": "nightly-\\u00fc", "run_id": "manual__1", "task_id": "group.authenticate", "ma'
            'p_index": 3}}}'
        ),
        pickle=(
            "gASV1gEAAAAAAACMJWFpcmZsb3dfcHJvdmlkZXJfbG9hbmF1dGguY3JlZGVudGlhbHOUjAlfcmVzdG9yZWSUk5RoAIwJQXBpU2Vj"
            "cmV0lJOUfZQojAZtZXRob2SUjANwcGWUjAdjb25uX2lklIwMbG9hbmF1dGhfcHBllIwJaXNzdWVkX2F0lIwZMjAyNi0wMS0wMlQw"
            "MzowNDowNSswMDowMJSMCmV4cGlyZXNfYXSUTowGc2VhbGVklIy4Z0FBQUFBQnJBcGRHTzBqaERpbGNOSDc3ZTh0TjFtT2l0bUx2"
            "OHNVRjhfd1VKN1ZPcVd5NGgwR0w3RnYxZE9VTlZycFEtV3RpRzY1NGdYdjEzUF9xMndGdEU1WFdiMWk0UHBSazduM0NsY3lLQ28z"
            "SDAwOTZYWnZXQ1BrQWVZM09LZ0s0TVg3V1Z6N2Z0bGM0R0lTV2ZlSF8yd2taTlRhZnYzak1jUkpRb1oxaEpZRW1oQm14bkVJPZSM"
            "BHRhc2uUfZQojAZkYWdfaWSUjApuaWdodGx5LcO8lIwGcnVuX2lklIwJbWFudWFsX18xlIwHdGFza19pZJSMEmdyb3VwLmF1dGhl"
            "bnRpY2F0ZZSMCW1hcF9pbmRleJRLA3V1SwGHlFKULg=="
        ),
    ),
}
each_credential = pytest.mark.parametrize("stored", CREDENTIALS.values(), ids=CREDENTIALS)

#: A deferred task: its trigger, the keyword arguments of the method that resumes it, and the events.
TRIGGER = json.loads(
    '["airflow_provider_loanauth.triggers.loanauth.ServiceReadyTrigger", {"address": "https://lender.pricing.examp'
    'le/tenant1", "poke_interval": 30.0, "deadline": 1767323045.5, "max_interval": 300.0}]'
)
NEXT_METHOD = "execute_complete"
EVENTS = ("ready", "timeout")


def check(credential, stored):
    """Assert that a credential has the type, metadata and secret that were stored."""
    assert type(credential) is stored.type
    assert {name: getattr(credential, name) for name in stored.attributes} == stored.attributes


@each_credential
def test_a_stored_xcom_value_is_deserialized(stored):
    check(serde.deserialize(json.loads(stored.xcom)), stored)


@each_credential
def test_a_stored_xcom_value_is_serialized_again_as_it_was(stored):
    credential = serde.deserialize(json.loads(stored.xcom))
    assert json.dumps(serde.serialize(credential)) == stored.xcom


@each_credential
def test_a_stored_pickle_is_loaded(stored):
    check(pickle.loads(base64.b64decode(stored.pickle)), stored)


@each_credential
def test_a_stored_pickle_and_xcom_value_are_equal(stored):
    unpickled = pickle.loads(base64.b64decode(stored.pickle))
    assert unpickled == serde.deserialize(json.loads(stored.xcom))
    assert pickle.loads(pickle.dumps(unpickled)) == unpickled
    assert json.dumps(serde.serialize(unpickled)) == stored.xcom


@each_credential
def test_a_release_that_did_not_store_the_issuing_task_stored_all_other_keys(stored):
    """Such a release reads exactly these keys, and ignores the task."""
    content = json.loads(stored.xcom)
    assert content["__version__"] == 1
    keys = {"method", "conn_id", "issued_at", "expires_at", "sealed"}
    assert set(content["__data__"]) == (keys | {"task"} if "task" in stored.attributes else keys)
    assert (serde.deserialize(content).task is None) is ("task" not in stored.attributes)


def test_a_stored_credential_that_has_expired_is_refreshed_by_a_late_task(define, sandbox):
    define("loanauth_default", sandbox.connections()["AIRFLOW_CONN_LOANAUTH_LOS"])
    credential = serde.deserialize(json.loads(CREDENTIALS["Airflow 3.3, los"].xcom))
    response = requests.post(f"{sandbox.url}/sandbox/price", json=loan(1), auth=LoanAuth(credential), timeout=30)
    assert response.status_code == 200
    assert sandbox.counters().authentications.succeeded == 1


def test_a_stored_trigger_is_made_again():
    from airflow.models.trigger import Trigger

    path, arguments = TRIGGER
    trigger = pkgutil.resolve_name(path)(**arguments)
    assert type(trigger) is ServiceReadyTrigger
    assert list(trigger.serialize()) == TRIGGER
    # As the scheduler writes it.
    assert Trigger.from_object(trigger).classpath == path


@pytest.fixture
def sensor(sandbox, define):
    """A sensor as the DAG file of a deferred task makes it again."""
    define("loanauth_default", sandbox.connections()["AIRFLOW_CONN_LOANAUTH_JWT"])
    return LoanAuthSensor(task_id="wait", timeout=600, poke_interval=30)


@pytest.mark.parametrize("event", EVENTS)
def test_a_deferred_task_resumes_and_authenticates(event, sensor, sandbox):
    next_kwargs = {"deadline": time.time() + 60, "event": event}
    assert type(sensor.resume_execution(NEXT_METHOD, next_kwargs, {})) is AccessToken
    assert sandbox.counters().authentications.succeeded == 1


def test_a_deferred_task_keeps_its_deadline_when_it_defers_again(sensor, sandbox):
    sandbox.set_fault("status", where="token")
    deadline = time.time() + 60
    with pytest.raises(TaskDeferred) as raised:
        sensor.resume_execution(NEXT_METHOD, {"deadline": deadline, "event": "ready"}, {})
    assert raised.value.method_name == NEXT_METHOD
    assert raised.value.kwargs == {"deadline": deadline}
    assert raised.value.trigger.serialize()[1] == {**TRIGGER[1], "address": sandbox.url, "deadline": deadline} | {
        "max_interval": None
    }


def test_a_deferred_task_times_out_when_the_service_is_still_unavailable(sensor, sandbox):
    sandbox.set_fault("status", where="token")
    with pytest.raises(AirflowSensorTimeout):
        sensor.resume_execution(NEXT_METHOD, {"deadline": TRIGGER[1]["deadline"], "event": "timeout"}, {})
