// kernels/conv/weight_parameters.cl: macros of the weight gradients on tensor cores, and their values where a kernel is
// built alone. Comes before conv/weight_warp.cl, conv/weight_warpgroup.cl and conv/weight_subgroup_matrix.cl.
// Macros of a launch: DY_DENSE (1: the stride between pixels of dy is dy_w across rows and images too).
#define OUTSIDE (-0x10000)  // a coordinate that stays outside the image for every pixel
#ifndef STORED_C
#define STORED_C C  // channels that are stored: less than C if x is padded to whole chunks of channels
#endif
