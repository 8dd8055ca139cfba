"""What makes an effect happen once: slots, keys, request hashes. What sends it lives in `engine`."""
