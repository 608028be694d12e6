//! The addresses of AWS's own images (deep learning containers).

use stokehold_jobs::Distribution;

use crate::SageMakerError;
use crate::section::{Framework, OnSageMaker};

/// The account whose registry has the images in most regions.
const USUAL: &str = "763104351884";

/// The regions of [`USUAL`], and the accounts of the others, as SageMaker's Python SDK 2.257.7 lists them for PyTorch's and
/// TensorFlow's images of training. Compared with what its `image_uris.retrieve` answers for all 112 pairs of a version and a
/// Python in two regions, for nine versions in all their regions, 42, and for 13 types of machines: from [`OLDEST`] on they agree, but for the
/// isolated regions (`us-iso-..`), whose services have addresses of their own.
const USUAL_REGIONS: [&str; 16] = [
    "ap-northeast-1",
    "ap-northeast-2",
    "ap-south-1",
    "ap-southeast-1",
    "ap-southeast-2",
    "ca-central-1",
    "eu-central-1",
    "eu-north-1",
    "eu-west-1",
    "eu-west-2",
    "eu-west-3",
    "sa-east-1",
    "us-east-1",
    "us-east-2",
    "us-west-1",
    "us-west-2",
];
const OTHERS: [(&str, &str); 22] = [
    ("af-south-1", "626614931356"),
    ("ap-east-1", "871362719292"),
    ("ap-east-2", "975050140332"),
    ("ap-northeast-3", "364406365360"),
    ("ap-south-2", "772153158452"),
    ("ap-southeast-3", "907027046896"),
    ("ap-southeast-4", "457447274322"),
    ("ap-southeast-5", "550225433462"),
    ("ap-southeast-6", "633930458069"),
    ("ap-southeast-7", "590183813437"),
    ("ca-west-1", "204538143572"),
    ("cn-north-1", "727897471807"),
    ("cn-northwest-1", "727897471807"),
    ("eu-central-2", "380420809688"),
    ("eu-south-1", "692866216735"),
    ("eu-south-2", "503227376785"),
    ("il-central-1", "780543022126"),
    ("me-central-1", "914824155844"),
    ("me-south-1", "217643126080"),
    ("mx-central-1", "637423239942"),
    ("us-gov-east-1", "446045086412"),
    ("us-gov-west-1", "442386744353"),
];

/// The first versions of PyTorch and TensorFlow whose images are in these registries under the names of today.
const OLDEST: [[u32; 3]; 2] = [[1, 2, 0], [1, 14, 0]];

/// Versions whose images for smdistributed have names of their own, as SageMaker's SDK has them.
const SMDISTRIBUTED: [(Framework, &str); 5] = [
    (Framework::Pytorch, "1.6.0"),
    (Framework::Tensorflow, "1.15.4"),
    (Framework::Tensorflow, "1.15.5"),
    (Framework::Tensorflow, "2.3.1"),
    (Framework::Tensorflow, "2.3.2"),
];

/// Whether it is one of the regions that have AWS's images.
pub(crate) fn is_known(region: &str) -> bool {
    USUAL_REGIONS.contains(&region) || OTHERS.iter().any(|(known, _)| *known == region)
}

/// The image that the section names, or that is made of its framework, for machines of these types, at least one.
pub(crate) fn image(
    section: &OnSageMaker,
    region: &str,
    machines: &[&str],
    launch: Distribution,
) -> Result<String, SageMakerError> {
    let input = |reason: String| Err(SageMakerError::Input(reason));
    let of_framework = (
        &section.framework,
        &section.framework_version,
        &section.python_version,
    );
    let (framework, version, python) = match (&section.image, of_framework) {
        (Some(image), (None, None, None)) => {
            image_is_of(image, region)?;
            return Ok(image.clone());
        }
        (None, (Some(framework), Some(version), Some(python))) => (framework, version, python),
        _ => {
            return input(
                "[sagemaker] wants an image: image = \"..\", or framework = \"pytorch\" with framework-version = \"2.6.0\" and \
                 python-version = \"py312\""
                    .to_owned(),
            );
        }
    };
    let numbers: Option<Vec<u32>> = version.split('.').map(|part| part.parse().ok()).collect();
    let Some(numbers) = numbers.filter(|numbers| numbers.len() == 3 && !version.contains('+')) else {
        return input(format!(
            "[sagemaker] framework-version = \"{version}\" is no whole version; give one such as 2.6.0"
        ));
    };
    let (name, oldest) = match framework {
        Framework::Pytorch => ("pytorch-training", OLDEST[0]),
        Framework::Tensorflow => ("tensorflow-training", OLDEST[1]),
    };
    if numbers[..] < oldest[..] {
        let [major, minor, patch] = oldest;
        return input(format!(
            "[sagemaker] framework-version = \"{version}\" has an image of another kind; take {major}.{minor}.{patch} or a newer \
             one, or give image = \"..\""
        ));
    }
    let digits = python.strip_prefix("py").unwrap_or_default();
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return input(format!(
            "[sagemaker] python-version = \"{python}\" is no Python of an image; give one such as py312"
        ));
    }
    let account = match OTHERS.iter().find(|(known, _)| *known == region) {
        Some((_, account)) => account,
        None if USUAL_REGIONS.contains(&region) => USUAL,
        None => {
            return input(format!(
                "[sagemaker] the registry of AWS's images in {region} is not known here; give image = \"..\""
            ));
        }
    };
    let mut processors = Vec::new();
    for machine in machines {
        let Some(processor) = processor(machine) else {
            return input(format!(
                "[sagemaker] the images for {machine} are not known here; give image = \"..\""
            ));
        };
        processors.push(processor);
    }
    let processor = processors[0];
    if processors.iter().any(|other| *other != processor) {
        return input(
            "[sagemaker] instance-groups has machines with and without GPUs, and AWS's images are for one of the two; give \
             image = \"..\""
                .to_owned(),
        );
    }
    let of_smdistributed =
        launch == Distribution::Smdistributed && SMDISTRIBUTED.contains(&(*framework, version.as_str()));
    let system = if of_smdistributed {
        "-cu110-ubuntu18.04"
    } else {
        ""
    };
    let china = if region.starts_with("cn-") { ".cn" } else { "" };
    Ok(format!(
        "{account}.dkr.ecr.{region}.amazonaws.com{china}/{name}:{version}-{processor}-{python}{system}"
    ))
}

/// Makes sure that an image that is in a registry of AWS's is in one of this region: SageMaker pulls no others.
fn image_is_of(image: &str, region: &str) -> Result<(), SageMakerError> {
    let registry = image.split('/').next().unwrap_or_default();
    let mut parts = registry.split('.').skip(1);
    let is_aws = parts.next() == Some("dkr") && matches!(parts.next(), Some("ecr" | "ecr-fips"));
    match parts.next() {
        Some(other) if is_aws && other != region => Err(SageMakerError::Input(format!(
            "the image {image} is in the registry of {other}, and the job would run in {region}: SageMaker takes images of its own \
             region only. Copy it there, or set region = \"{other}\""
        ))),
        _ => Ok(()),
    }
}

/// Which kind of image a type of machine wants: `ml.g5.xlarge` has a GPU of NVIDIA. None for AWS's own chips: Trainium,
/// Inferentia, and Graviton, which `ml.c6g.xlarge` has.
fn processor(machine: &str) -> Option<&'static str> {
    let family = machine.strip_prefix("ml.")?.split('.').next()?;
    let after = family.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    let is_graviton = after
        .trim_start_matches(|c: char| c.is_ascii_digit())
        .starts_with('g');
    match family {
        "" => None,
        _ if is_graviton || family.starts_with("inf") || family.starts_with("trn") => None,
        _ if family.starts_with(['p', 'g']) => Some("gpu"),
        _ => Some("cpu"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stokehold_base::fault::Fault;

    /// The image for a type of machine, a framework, its version, a Python and a region.
    fn image_of(words: &str, launch: Distribution) -> Result<String, SageMakerError> {
        let words: Vec<&str> = words.split_whitespace().collect();
        let [machine, framework, version, python, region] = words[..] else {
            panic!("{words:?}")
        };
        let section = OnSageMaker {
            framework: Some(match framework {
                "pytorch" => Framework::Pytorch,
                _ => Framework::Tensorflow,
            }),
            framework_version: Some(version.to_owned()),
            python_version: Some(python.to_owned()),
            ..OnSageMaker::default()
        };
        image(&section, region, &[machine], launch)
    }

    /// The answers are those of `image_uris.retrieve` of SageMaker's Python SDK 2.257.7.
    #[test]
    fn images_are_those_of_sagemakers_sdk() {
        const IMAGES: &str = "\
            ml.m5.large     pytorch    2.6.0  py312 us-east-1      763104351884 com    pytorch-training:2.6.0-cpu-py312
            ml.p4d.24xlarge pytorch    2.6.0  py312 us-west-1      763104351884 com    pytorch-training:2.6.0-gpu-py312
            ml.g4dn.xlarge  tensorflow 2.6.0  py312 af-south-1     626614931356 com    tensorflow-training:2.6.0-gpu-py312
            ml.c5.xlarge    pytorch    2.6.0  py312 cn-north-1     727897471807 com.cn pytorch-training:2.6.0-cpu-py312
            ml.g5.xlarge    pytorch    2.8.0  py312 ap-southeast-6 633930458069 com    pytorch-training:2.8.0-gpu-py312
            ml.gr6.4xlarge  pytorch    1.2.0  py2   us-east-1      763104351884 com    pytorch-training:1.2.0-gpu-py2
            ml.z1d.large    tensorflow 1.15.5 py37  us-gov-west-1  442386744353 com    tensorflow-training:1.15.5-cpu-py37";
        for line in IMAGES.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (asked, wanted) = words.split_at(5);
            let [account, end, name] = wanted else {
                panic!("{line}")
            };
            let found = image_of(&asked.join(" "), Distribution::None).unwrap();
            let region = asked[4];
            assert_eq!(
                found,
                format!("{account}.dkr.ecr.{region}.amazonaws.{end}/{name}")
            );
        }
    }

    /// As `image_uris.retrieve` with `distribution={"smdistributed": ..}` answers.
    #[test]
    fn old_images_for_smdistributed_have_names_of_their_own() {
        for (version, wanted) in [
            ("1.6.0", "pytorch-training:1.6.0-gpu-py36-cu110-ubuntu18.04"),
            ("1.8.1", "pytorch-training:1.8.1-gpu-py36"),
        ] {
            let words = format!("ml.p4d.24xlarge pytorch {version} py36 us-east-1");
            let image = image_of(&words, Distribution::Smdistributed).unwrap();
            assert!(image.ends_with(wanted), "{image}");
        }
    }

    #[test]
    fn an_image_that_cannot_be_derived_is_asked_for() {
        const REFUSED: &str = "\
            ml.g5.xlarge   pytorch    2.8.0   py312 us-iso-east-1 => in us-iso-east-1 is not known here; give image
            ml.g5.xlarge   pytorch    2.8.0   py312 mars-north-1  => in mars-north-1 is not known here; give image
            ml.inf1.xlarge pytorch    2.8.0   py312 us-east-1     => images for ml.inf1.xlarge are not known
            ml.trn1.large  pytorch    2.8.0   py312 us-east-1     => images for ml.trn1.large are not known
            ml.c6gn.xlarge pytorch    2.8.0   py312 us-east-1     => images for ml.c6gn.xlarge are not known
            ml.g5.xlarge   pytorch    1.1.0   py312 us-east-1     => take 1.2.0 or a newer one
            ml.g5.xlarge   tensorflow 1.13.1  py312 us-east-1     => take 1.14.0 or a newer one
            ml.g5.xlarge   pytorch    2.6     py312 us-east-1     => is no whole version
            ml.g5.xlarge   pytorch    2.+8.0  py312 us-east-1     => is no whole version
            ml.g5.xlarge   pytorch    2.8.0.1 py312 us-east-1     => is no whole version
            ml.g5.xlarge   pytorch    99999999999.8.0 py312 us-east-1 => is no whole version
            ml.g5.xlarge   pytorch    2.6.0   3.12  us-east-1     => python-version = \"3.12\" is no Python";
        for line in REFUSED.lines() {
            let (words, says) = line.split_once(" => ").unwrap();
            let error = image_of(words, Distribution::None).unwrap_err();
            assert!(error.is_input() && error.to_string().contains(says), "{error}");
        }
    }

    /// What SageMaker says of one: "Cross region ECR image pulls are not allowed".
    #[test]
    fn an_image_in_another_regions_registry_is_refused() {
        for image in [
            "123456789012.dkr.ecr.us-east-1.amazonaws.com/train:1",
            "123456789012.dkr.ecr-fips.us-east-1.amazonaws.com/a/b@sha256:00",
            "registry.example/train:1",
            "train",
        ] {
            image_is_of(image, "us-east-1").unwrap();
            let refused = image_is_of(image, "eu-west-1").map_err(|error| error.to_string());
            match image.contains(".us-east-1.") {
                true => {
                    let said = refused.unwrap_err();
                    assert!(
                        said.contains("the registry of us-east-1") && said.contains("eu-west-1"),
                        "{said}"
                    );
                }
                false => refused.unwrap(),
            }
        }
    }
}
