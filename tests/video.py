"""What is in a video file."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

READ = """
import json, sys
import imageio
import numpy as np
with imageio.get_reader(sys.argv[1]) as reader:
    meta = reader.get_meta_data()
    print(json.dumps({key: meta[key] for key in ("fps", "codec", "size")}))
    np.save(sys.argv[2], np.stack(list(reader.iter_data())))
"""


def read_video(path: Path) -> tuple[dict[str, Any], np.ndarray]:
    """The metadata that imageio reads, and the frames (T, H, W, 3).

    In a separate process: imageio leaves pipes open, which Python warns about.
    """
    kept = path.with_suffix(".npy")
    words = [sys.executable, "-c", READ, str(path), str(kept)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    frames = np.load(kept)
    kept.unlink()
    return json.loads(done.stdout), frames
