"""Actors that send unrolls to one learner ("actor_learner")."""
