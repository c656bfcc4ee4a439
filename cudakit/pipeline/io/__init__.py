"""Where items come from and go to: arrays, files, images, Zarr, sockets."""
