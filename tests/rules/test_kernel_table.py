"""Kernels by their names, as traces of vLLM and SGLang have them on NVIDIA's and AMD's GPUs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vllm_doctor.model.errors import DocumentError
from vllm_doctor.rules import kernel_table

KERNELS = {
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": ("communication", ""),
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)": ("communication", ""),
    "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)": ("communication", ""),
    "fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128": ("attention", ""),
    "kernel_unified_attention_3d": ("attention", ""),
    "void paged_attention_ll4mi_QKV_mfma16_kernel<0, __hip_bfloat16, __hip_bfloat16>": ("attention", ""),
    "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128>>": ("attention", ""),
    "void vllm::reshape_and_cache_flash_kernel<__hip_bfloat16>": ("kv-write", ""),
    "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu": ("moe", "FP4"),
    "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3": ("moe", "FP4"),
    "fused_moe_kernel": ("moe", ""),
    "nvjet_tst_64x64_64x16_2x1_2cta_v_bz_bias_TNT": ("gemm", "BF16"),
    "nvjet_qqtst_128x128_128x6_2x1_v_bz_TNT": ("gemm", "FP8"),
    "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT32x32x256": ("gemm", "BF16"),
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64": ("gemm", "BF16"),
    "ampere_fp16_s16816gemm_fp16_64x64_ldg8_f2f_stages_64x6_tn": ("gemm", "FP16"),
    "Cijk_Alik_Bljk_B_BS_BH_Bias_HA_S_SAV_UserArgs_MT256x128x64": ("gemm", "BF16"),
    "volta_sgemm_64x64_nt": ("gemm", "FP32"),
    "void vllm::rms_norm_kernel<c10::BFloat16, 8, 2>": ("norm", ""),
    "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0": ("norm", ""),
    "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16b": ("norm", ""),
    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float>": ("sampling", ""),
    "void vllm::act_and_mul_kernel<c10::BFloat16>": ("elementwise", ""),
    "triton_poi_fused_mul_silu_1": ("elementwise", ""),
    "_per_token_group_quant_8bit": ("quantisation", ""),
    "_causal_conv1d_update_kernel": ("state-space", ""),
    "something_new": ("other", ""),
}


@pytest.mark.parametrize(("name", "expected"), KERNELS.items())
def test_the_family_of_a_kernel(name: str, expected: tuple[str, str]) -> None:
    assert kernel_table.load().of_kernel(name) == expected


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("aten::addmm", "gemm"), ("_C::onednn_mm", "gemm"), ("vllm::unified_attention_with_output", "attention"),
        ("aten::softmax", "sampling"), ("vllm::all_reduce", "communication"), ("aten::copy_", "elementwise"),
        ("Torch-Compiled Region: 0/1", "other"),
    ],
)  # fmt: skip
def test_the_family_of_an_operator(name: str, family: str) -> None:
    assert kernel_table.load().of_op(name) == family


@pytest.mark.parametrize(
    ("name", "context", "generation"),
    [
        ("execute_context_1(888_788544)_generation_0(0)", "1", "0"),
        ("execute_context_0(0)_generation_8(8)", "0", "8"),
        ("execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk5)", "0", "32"),
    ],
)
def test_vllms_steps_tell_their_requests(name: str, context: str, generation: str) -> None:
    found = kernel_table.load().steps[0].pattern.search(name)
    assert found is not None
    assert (found["context"], found["generation"]) == (context, generation)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("families: [{family: a, says: a, kernels: '(', ops: b}]", "no regular expression"),
        ("families: [{family: a, says: a, kernel: b, ops: b}]", "unknown key 'kernel'"),
        ("more: []", "unknown key 'more'"),
    ],
)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "profile").mkdir()
    (tmp_path / kernel_table.FILE).write_text(text)
    with pytest.raises(DocumentError, match=re.escape(says)):
        kernel_table.load(tmp_path)
