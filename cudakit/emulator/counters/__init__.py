"""What kernels do, counted while the emulator runs them: instructions, sectors, wavefronts, conflicts; never time."""
