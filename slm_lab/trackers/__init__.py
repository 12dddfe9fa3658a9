"""What a training has written, sent to callbacks and trackers while it runs."""
