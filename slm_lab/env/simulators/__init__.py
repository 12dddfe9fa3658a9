"""Code for single simulators: Atari, MuJoCo, drawing."""
