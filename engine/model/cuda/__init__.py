"""The fast lane on an NVIDIA GPU: attention over the blocks by the best kernel that proves right, decode steps as CUDA graphs."""
