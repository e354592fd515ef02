// csrc/schedule/templates.cpp: the template rows, in the order in which they are asked: the more special, the earlier.
#include "csrc/schedule/templates/choosers.h"

namespace ocl::schedule {

const std::vector<TemplateRow>& template_rows() {
  static const std::vector<TemplateRow> rows = {
      {"attention_item", true, false, choose_attention_item},
      {"depthwise_item", true, false, choose_depthwise_item},
      {"winograd_item", true, false, choose_winograd_item},
      {"winograd_weight_item", true, false, choose_winograd_weight_item},
      {"conv_weight_packed_item", true, false, choose_conv_weight_packed_item},
      {"conv_weight_item", true, false, choose_conv_weight_item},
      {"conv_item", true, false, choose_conv_item},
      {"gemm_item", true, false, choose_gemm_item},
      {"attention_wgmma", false, true, choose_attention_wgmma},
      {"attention_mma", false, true, choose_attention_mma},
      {"attention_group", false, true, choose_attention_group},
      {"depthwise_group", false, true, choose_depthwise_group},
      {"conv_weight_wgmma", false, true, choose_conv_weight_wgmma},
      {"conv_wgmma", false, true, choose_conv_wgmma},
      {"gemm_packed_wgmma", false, true, choose_gemm_packed_wgmma},
      {"gemm_wgmma", false, true, choose_gemm_wgmma},
      {"conv_weight_mma", false, true, choose_conv_weight_mma},
      {"conv_mma", false, true, choose_conv_mma},
      {"gemm_mma", false, true, choose_gemm_mma},
      {"winograd_group", false, true, choose_winograd_group},
      {"conv_weight_group", false, true, choose_conv_weight_group},
      {"conv_group", false, true, choose_conv_group},
      {"gemm_group", false, true, choose_gemm_group},
  };
  return rows;
}

}  // namespace ocl::schedule
