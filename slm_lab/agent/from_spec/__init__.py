"""The keys of a spec become the arguments of nets, optimizers and memories."""
