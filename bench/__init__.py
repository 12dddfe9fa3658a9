"""Speed and score harnesses. Not part of the package, and never part of the tests."""
