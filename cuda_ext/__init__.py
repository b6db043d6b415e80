"""The silicon room: kernels of ours, one C++ source each, with their build and binding."""
