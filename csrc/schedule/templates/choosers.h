// csrc/schedule/templates/choosers.h: one chooser per template file: *_item for CPUs, *_group for GPUs, *_wgmma for their
// matrix units. What a chooser does:
// template.h.
#pragma once

#include "csrc/schedule/template.h"

namespace ocl::schedule {

bool choose_attention_item(TemplateContext& context, TemplateLaunch& launch);
bool choose_depthwise_item(TemplateContext& context, TemplateLaunch& launch);
bool choose_winograd_item(TemplateContext& context, TemplateLaunch& launch);
bool choose_winograd_weight_item(TemplateContext& context, TemplateLaunch& launch);
bool choose_conv_item(TemplateContext& context, TemplateLaunch& launch);
bool choose_conv_weight_item(TemplateContext& context, TemplateLaunch& launch);
bool choose_conv_weight_packed_item(TemplateContext& context, TemplateLaunch& launch);
bool choose_gemm_item(TemplateContext& context, TemplateLaunch& launch);
bool choose_attention_group(TemplateContext& context, TemplateLaunch& launch);
bool choose_depthwise_group(TemplateContext& context, TemplateLaunch& launch);
bool choose_winograd_group(TemplateContext& context, TemplateLaunch& launch);
bool choose_conv_group(TemplateContext& context, TemplateLaunch& launch);
bool choose_conv_weight_group(TemplateContext& context, TemplateLaunch& launch);
bool choose_gemm_group(TemplateContext& context, TemplateLaunch& launch);

bool choose_attention_wgmma(TemplateContext& context, TemplateLaunch& launch);
bool choose_conv_wgmma(TemplateContext& context, TemplateLaunch& launch);
bool choose_attention_mma(TemplateContext& context, TemplateLaunch& launch);
bool choose_conv_mma(TemplateContext& context, TemplateLaunch& launch);
bool choose_conv_weight_wgmma(TemplateContext& context, TemplateLaunch& launch);
bool choose_conv_weight_mma(TemplateContext& context, TemplateLaunch& launch);
bool choose_gemm_packed_wgmma(TemplateContext& context, TemplateLaunch& launch);
bool choose_gemm_wgmma(TemplateContext& context, TemplateLaunch& launch);
bool choose_gemm_mma(TemplateContext& context, TemplateLaunch& launch);

}  // namespace ocl::schedule
