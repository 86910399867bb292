"""Libraries that take a command noticeable time to load, for tests and benchmarks."""

HEAVY = (
    "numba",
    "llvmlite",
    "scipy",
    "matplotlib",
    "cv2",
    "pycolmap",
    "faiss",
    "h5py",
    "PIL",
    "poselib",
    "jinja2",
    "torch",
    "onnxruntime",
)
