"""Environments: always vectorised, reset in the step that ends an episode, numpy only.

`make.make_env` builds a `vector_env.VectorEnv` from a spec, the interface for the rest
of the lab.
"""
