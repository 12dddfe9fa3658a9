"""Virtual time: many workers on few cores, one at a time, as if each had a core."""
