// kernels/fft/lanes.cl: a vector has 8 or 16 lines, in the kernels of CPUs; comes before butterfly.cl.
#ifndef LANES
#define LANES 8
#endif
