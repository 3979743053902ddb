"""The modes of a sensor, by name: its parameters."""

MODES = {"poke": {}, "reschedule": {"mode": "reschedule"}, "deferrable": {"deferrable": True}}
