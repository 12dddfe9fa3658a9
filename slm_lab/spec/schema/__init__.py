"""The models of the spec language, one file per block. They are frozen and refuse what they
do not know; docs/spec_reference.md is generated from them."""
