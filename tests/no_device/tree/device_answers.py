# tests/no_device/tree/device_answers.py: how ocl is treated where torch names other accelerators, and why that is right.
"""File -> function -> answer, for the places that device_lists.py finds. A name may end in * for all that begins with it. The
answer says what happens to an ocl tensor; where another device is the exception, ocl goes the way of all the others.
"""

from __future__ import annotations

ANSWERS: dict[str, dict[str, str]] = {
    "_decomp/decompositions.py": {
        "_addmm_activation": "exact GELU, as on the CPU; our fused product computes that one",
        "_grid_sampler_2d": "int64 indices, as on the CPU; the compiler narrows them itself",
        "_reflection_or_replication_pad": "keeps the memory format, as on the CPU",
        "_upsample_linear": "keeps the memory format, as on the CPU",
        "_upsample_nearest": "keeps the memory format, as on the CPU",
        "log_sigmoid_forward": "returns the buffer that the CPU returns",
        "max_pool2d_with_indices_backward": "excludes devices whose scatter is wrong; ours is right",
    },
    "_decomp/decompositions_for_jvp.py": {
        "log_sigmoid_forward": "returns the buffer that the CPU returns",
    },
    "_decomp/decompositions_for_rng.py": {
        "rand": "CUDA's philox functionalisation, which the ocl backend does not use",
        "rand_like": "CUDA's philox functionalisation, which the ocl backend does not use",
    },
    "_dynamo/backends/cudagraphs.py": {
        "get_device_index": "another backend",
    },
    "_dynamo/backends/tvm.py": {
        "tvm": "another backend",
    },
    "_dynamo/compiled_autograd.py": {
        "AutogradCompilerInstance.move_graph_nodes_to_cuda": "for CUDA graphs; lowering passes CPU scalars to the device",
    },
    "_dynamo/debug_utils.py": {
        "NNModuleToString.convert": "writes a program for Inductor's minifier; ours is in compile/repro.py",
    },
    "_dynamo/device_interface.py": {
        "CudaInterface.*": "the interface of CUDA; ours is device/dynamo_interface.py",
        "MtiaInterface.*": "the interface of MTIA; ours is device/dynamo_interface.py",
        "XpuInterface.*": "the interface of XPU; ours is device/dynamo_interface.py",
    },
    "_dynamo/graph_utils.py": {
        "_graph_device_type": "names the device in precompiled packages of Inductor",
    },
    "_dynamo/package.py": {
        "SystemInfo": "precompiled packages of Inductor compare the GPU; our cache's keys have the device",
    },
    "_dynamo/repro/*": {
        "*": "programs for Inductor's minifier; ours is in compile/repro.py",
    },
    "_dynamo/symbolic_convert.py": {
        "InstructionTranslatorBase._maybe_emit_sync_dealloc": "our allocator reuses memory only when all streams are done with it",
    },
    "_dynamo/test_case.py": {
        "run_tests": "torch's own tests",
    },
    "_dynamo/utils.py": {
        "check_is_cuda": "asked by backends with CUDA graphs only",
        "clone_input": "an exception for XLA",
        "is_compile_supported": "asked by the content store, which then hashes in eager mode",
    },
    "_dynamo/variables/optimizer.py": {
        "OptimizerVariable._set_capturable.safe_to_set_capturable": "mended: device/compiled_optimizers.py makes step counts on the device",
        "_is_static_for_cudagraphs": "mended: device/compiled_optimizers.py answers without Inductor",
    },
    "_dynamo/variables/tensor.py": {
        "TensorVariable.method_attr_is_cuda": "is_cuda is False for an ocl tensor, as in eager mode",
    },
    "_functorch/partitioners.py": {
        "functionalize_rng_ops*": "for CUDA's functionalised random ops; the ocl backend has its own partition function",
    },
    "_functorch/top_operators_github_usage.py": {
        "": "statistics of torch's developers",
    },
    "_higher_order_ops/associative_scan.py": {
        "associative_scan._validate_input": 'a clear error: combine_mode="generic" works',
    },
    "_higher_order_ops/cudagraph_conditional_nodes.py": {
        "if_else_node": "CUDA graphs only",
    },
    "_higher_order_ops/inline_asm_elementwise.py": {
        "_inline_asm_dense": "PTX, which needs CUDA tensors",
    },
    "_higher_order_ops/out_dtype.py": {
        "is_int_mm": "takes the product of converted operands, which is exact",
    },
    "_meta_registrations.py": {
        "_check_scaled_mm_sizes*": "rules of CUDA's fp8 products, which have no kernel here",
        "_linalg_svd_meta": "strides of the CPU's function, which we call",
        "_pad2d_common": "keeps the memory format, as on the CPU",
        "calc_conv_nd_return_shape": "an empty result is an error, as on the CPU",
        "meta__scaled_dot_product_flash_attention": "that op is CUDA's; ours is lowering/products/attention.py",
        "meta__weight_int4pack_mm": "int4 products, which have no kernel here",
        "meta_fft_*": "strides of the CPU's function, which we call",
        "meta_histc": "only a warning about CUDA's kernel",
        "meta_linalg_eig": "strides of the CPU's function, which we call",
        "meta_median_mode_dim": "only a warning about CUDA's kernel",
        "meta_pixel_shuffle.pick_memory_format": "keeps the memory format, as on the CPU",
        "nonzero_static": "a plan gives each result the strides of the trace",
        "upsample_nearest2d": "keeps the memory format, as on the CPU",
    },
    "_prims_common/__init__.py": {
        "_check_strides_helper": "torch's own checks of decompositions",
        "compare_tensor_meta": "torch's own checks of decompositions",
    },
    "_refs/__init__.py": {
        "is_noncontiguous_supported": "an exception for HPU",
        "native_layer_norm": "mean and rstd stay float32, as on CUDA; the fake function and the kernel agree",
    },
    "_refs/fft.py": {
        "_promote_type_fft": "half precision is an error, as on the CPU, whose function we call",
    },
    "_refs/nn/functional/__init__.py": {
        "channel_shuffle": "returns new memory, as on the CPU",
    },
    "_subclasses/fake_impls.py": {
        "conv": "an exception for XPU",
        "is_noncontiguous_supported": "an exception for HPU",
    },
    "_subclasses/fake_tensor.py": {
        "FakeTensor._normalize_fake_device": "starts the driver; torch.ocl starts at the first use",
    },
    "_tensor.py": {
        "Tensor.__cuda_array_interface__": "not a CUDA tensor; torch.ocl.to_cuda shares memory",
        "Tensor.__dir__": "hides an attribute of CUDA tensors",
        "Tensor.__dlpack__": "streams of CUDA; a private device needs none",
    },
    "_tensor_str.py": {
        "_str_intern": "device/registration.py prints from the CPU",
        "tensor_totype": "device/registration.py prints from the CPU",
    },
    "accelerator/memory.py": {
        "_snapshot": "torch.ocl has its own snapshots",
    },
    "amp/grad_scaler.py": {
        "GradScaler.__init__": 'a check of CUDA; GradScaler("ocl") has its kernels',
    },
    "autograd/_functions/tensor.py": {
        "Type.forward": "only for the legacy method type()",
    },
    "distributed/_local_tensor/*": {
        "*": "torch's simulation of ranks for its own tests",
    },
    "distributed/_shard/sharded_tensor/*": {
        "*": "ShardedTensor, which DTensor has replaced",
    },
    "distributed/_symmetric_memory/*": {
        "*": "symmetric memory of CUDA's NVLink",
    },
    "distributed/_tools/*": {
        "*": "estimates of CUDA memory",
    },
    "distributed/collective_utils.py": {
        "_check_rng_sync_internal": "a check of CUDA's generator state",
    },
    "distributed/device_mesh.py": {
        "DeviceMesh.__init__": "an exception for XLA",
    },
    "distributed/distributed_c10d.py": {
        "Backend*": "device/distributed.py registers the process group of ocl",
        "_create_shrunk_process_group": "NCCL only",
        "broadcast": "fp8 is sent as bytes, which all backends can",
    },
    "distributed/fsdp/_common_utils.py": {
        "_FSDPDeviceHandle.from_device": "any other device gets torch.ocl by its name",
    },
    "distributed/fsdp/_fully_shard/_fsdp_collectives.py": {
        "_get_gradient_divide_factors": "an exception for MTIA",
    },
    "distributed/fsdp/_shard_utils.py": {
        "_get_remote_device_str": "the default has the device's index, as ours",
    },
    "distributed/nn/api/remote_module.py": {
        "_RemoteModule._prepare_init": "RPC, which takes CPU and CUDA tensors only",
    },
    "distributed/rpc/*": {
        "*": "RPC, which takes CPU and CUDA tensors only",
    },
    "distributed/tensor/_api.py": {
        "distribute_*": "an exception for XLA",
    },
    "distributed/tensor/_dispatch.py": {
        "OpDispatcher._dispatch_get_local_results_slow_path": "the random state of the device is taken, as for all but CUDA",
    },
    "distributed/tensor/_random.py": {
        "OffsetBasedRNGTracker.*": "an exception for HPU",
    },
    "multiprocessing/reductions.py": {
        "reduce_storage": "CUDA's shared memory; a storage of ocl cannot be sent",
        "reduce_tensor": "CUDA's shared memory; a tensor of ocl cannot be sent",
    },
    "nested/_internal/ops.py": {
        "*": "a bool is padded as it is, as on the CPU",
    },
    "nn/attention/_fa3.py": {
        "*": "kernels of CUDA that a user registers by hand",
    },
    "nn/attention/_fa4.py": {
        "*": "kernels of CUDA that a user registers by hand",
    },
    "nn/attention/bias.py": {
        "CausalBias._dispatch": "only if torch can use CUDA's flash attention",
    },
    "nn/attention/experimental/*": {
        "*": "kernels of CUDA",
    },
    "nn/attention/flex_attention.py": {
        "_apply_kernel_options": "an exception for MPS",
        "_validate_device": "mended: device/flex_attention.py allows ocl",
    },
    "nn/attention/varlen.py": {
        "*": "asks for cuDNN; the ops behind it are CUDA's",
    },
    "nn/functional.py": {
        "max_pool3d_with_indices": "CUDA's backward is not deterministic; ours is",
        "pad": "CUDA's backward is not deterministic; ours is",
    },
    "nn/modules/linear_cross_entropy.py": {
        "*": "computes in the dtype of the operands and converts, as on the CPU",
    },
    "nn/modules/linear_cross_entropy_options.py": {
        "*": "computes in the dtype of the operands and converts, as on the CPU",
    },
    "nn/modules/rnn.py": {
        "RNNBase.flatten_parameters": "cuDNN's packed weights",
    },
    "nn/parallel/data_parallel.py": {
        "DataParallel.__init__": "a warning about unequal CUDA GPUs; device/data_parallel.py does the rest",
    },
    "nn/utils/_expanded_weights/*": {
        "*": "an attribute: False for ocl",
    },
    "nn/utils/rnn.py": {
        "PackedSequence.*": "an attribute: False for ocl",
    },
    "optim/optimizer.py": {
        "Optimizer._accelerator_graph_capture_health_check": "capture of CUDA graphs",
        "_disable_dynamo_if_unsupported.wrapper.maybe_fallback": "steps on the device are always traced with capturable",
    },
    "serialization.py": {
        "_mps_tag": "MPS; a private device has its own tag",
    },
    "storage.py": {
        "*": "attributes and classes of other devices",
    },
    "utils/checkpoint.py": {
        "_infer_device_type": "prefers CUDA among several devices; alone, ocl is found",
    },
    "utils/data/dataloader.py": {
        "_BaseDataLoaderIter.__init__": "an exception for MPS; torch.accelerator is ocl",
    },
    "utils/flop_counter.py": {
        "": "a table of CUDA GPUs",
    },
}
