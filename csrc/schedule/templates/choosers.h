// csrc/schedule/templates/choosers.h: one chooser per template file: *_item for CPUs, *_group for GPUs. What a chooser does: template.h.
#pragma once

#include "csrc/schedule/template.h"

namespace ocl::schedule {

// Weak, so that a build without one of these files only lacks its row; the generic loops take its nodes.
#define OCL_CHOOSER(name) bool choose_##name(TemplateContext& context, TemplateLaunch& launch) __attribute__((weak))
OCL_CHOOSER(depthwise_item);
OCL_CHOOSER(winograd_item);
OCL_CHOOSER(conv_item);
OCL_CHOOSER(conv_weight_item);
OCL_CHOOSER(gemm_item);
OCL_CHOOSER(depthwise_group);
OCL_CHOOSER(winograd_group);
OCL_CHOOSER(conv_group);
OCL_CHOOSER(conv_weight_group);
OCL_CHOOSER(gemm_group);
#undef OCL_CHOOSER

}  // namespace ocl::schedule
