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
        (DeviceChoice::Cuda, cfg!(feature = "cuda")),
        (DeviceChoice::Vulkan, cfg!(feature = "vulkan")),
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
    for choice in DeviceChoice::ALL {
        assert_eq!(choice.to_string().parse::<DeviceChoice>().unwrap(), choice);
        assert_eq!(serde_json::to_string(&choice).unwrap(), format!("\"{choice}\""));
    }
    let error = "tpu".parse::<DeviceChoice>().unwrap_err().to_string();
    assert_eq!(
        error,
        "there is no device 'tpu': choose one of auto, cpu, cuda, vulkan"
    );
}
