"""Environments: always vectorised, reset in the step that ends an episode, numpy only.

`make.make_env` builds one from a spec; `vector_env.VectorEnv` is what the rest of the lab sees.
"""
