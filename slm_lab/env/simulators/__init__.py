"""What single simulators need: Atari, MuJoCo, windows."""
