// The source that scripts/targets.cmake precompiles GoogleTest for (fp16lab_light_tests); it holds nothing.
