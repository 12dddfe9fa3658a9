"""The models of the spec language, one file per block.

They are frozen and reject unknown keys. docs/spec_reference.md is generated from
them."""
