"""The rows of a Session: columns, trackers, CSV files, TensorBoard."""
