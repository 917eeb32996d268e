"""Binary formats on the network and on disk: frames and batches of frames."""
