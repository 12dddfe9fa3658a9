"""The net room: networks built from a spec, and what actor and critic make of them."""
