//! A device is there or there is a clear error.

use stokehold_train::device::{DeviceChoice, DeviceError, open};

#[test]
fn the_cpu_is_always_there() {
    assert!(!open(DeviceChoice::Cpu).unwrap().is_autodiff());
    assert!(open(DeviceChoice::Auto).is_ok());
}

/// With the feature and a GPU the device opens; in every other case the error says what to do.
#[test]
fn an_accelerator_opens_or_the_error_says_why() {
    for (choice, compiled) in [
        (DeviceChoice::Cuda(0), cfg!(feature = "cuda")),
        (DeviceChoice::Vulkan(0), cfg!(feature = "vulkan")),
    ] {
        match open(choice) {
            Ok(_) => assert!(compiled),
            Err(error @ DeviceError::NotCompiledIn { .. }) => {
                assert!(!compiled);
                let feature = format!("--features {choice}");
                assert!(error.to_string().contains(&feature), "{error}");
                assert!(error.to_string().contains("train on the cpu"), "{error}");
            }
            Err(error) => {
                assert!(compiled && matches!(error, DeviceError::Absent { .. }), "{error}");
                assert!(error.to_string().contains("driver"), "{error}");
            }
        }
    }
}

#[test]
fn names_are_those_of_the_command_line() {
    for (name, choice) in [
        ("auto", DeviceChoice::Auto),
        ("cpu", DeviceChoice::Cpu),
        ("cuda", DeviceChoice::Cuda(0)),
        ("cuda:1", DeviceChoice::Cuda(1)),
        ("vulkan", DeviceChoice::Vulkan(0)),
        ("vulkan:12", DeviceChoice::Vulkan(12)),
    ] {
        assert_eq!(name.parse::<DeviceChoice>().unwrap(), choice);
        assert_eq!(choice.to_string(), name);
        let json = format!("\"{name}\"");
        assert_eq!(serde_json::to_string(&choice).unwrap(), json);
        assert_eq!(serde_json::from_str::<DeviceChoice>(&json).unwrap(), choice);
    }
    assert_eq!("cuda:0".parse::<DeviceChoice>().unwrap(), DeviceChoice::Cuda(0));
    for name in [
        "tpu",
        "cpu:0",
        "auto:1",
        "cuda:",
        "cuda:-1",
        "cuda:x",
        "vulkan:1:2",
        "",
    ] {
        let error = name.parse::<DeviceChoice>().unwrap_err().to_string();
        assert!(
            error.starts_with(&format!(
                "there is no device '{name}': choose auto, cpu, cuda or vulkan"
            )),
            "{error}"
        );
    }
    // None of this machine's kinds has so many.
    for choice in [DeviceChoice::Cuda(99), DeviceChoice::Vulkan(99)] {
        let error = open(choice).unwrap_err().to_string();
        assert!(error.contains(&choice.to_string()), "{error}");
    }
}
