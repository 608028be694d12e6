//! Jobs that tune hyperparameters: the request against botocore's model, what is refused, the calls.

use std::time::Duration;

use serde_json::{Value, json};
use stokehold_sagemaker::{
    CategoricalRange, CompletionCriteria, Convergence, CreateTuningJob, EarlyStoppingType, Hyperband,
    HyperbandConfig, JobDefinition, JobStatus, NotImproving, NumberRange, Objective, ObjectiveType,
    ParameterRanges, ParentJob, ResourceLimits, SageMakerError, ScalingType, TuningJobConfig, TuningStrategy,
    WarmStart, WarmStartType, follow_tuning,
};

use crate::moto::Moto;
use crate::stub::{Reply, Stub};
use crate::{full, wrong};

/// With every member but those of Hyperband.
fn tuning() -> CreateTuningJob {
    let mut job = full();
    job.profiler_config = None;
    let tags = std::mem::take(&mut job.tags);
    let number = |name: &str, min: &str, max: &str, scaling| NumberRange {
        name: name.to_owned(),
        min_value: min.to_owned(),
        max_value: max.to_owned(),
        scaling_type: scaling,
    };
    let mut definition = JobDefinition::from(job);
    definition.static_hyper_parameters.remove("lr");
    CreateTuningJob {
        hyper_parameter_tuning_job_name: "flowers-0123abcd".into(),
        hyper_parameter_tuning_job_config: TuningJobConfig {
            strategy: TuningStrategy::Bayesian,
            strategy_config: None,
            hyper_parameter_tuning_job_objective: Some(Objective {
                r#type: ObjectiveType::Minimize,
                metric_name: "loss".into(),
            }),
            resource_limits: ResourceLimits {
                max_number_of_training_jobs: Some(20),
                max_parallel_training_jobs: 4,
                max_runtime_in_seconds: Some(7200),
            },
            parameter_ranges: ParameterRanges {
                integer_parameter_ranges: vec![number("depth", "1", "9", ScalingType::Linear)],
                continuous_parameter_ranges: vec![
                    number("lr", "0.001", "0.1", ScalingType::Logarithmic),
                    number("momentum", "0.5", "0.99", ScalingType::ReverseLogarithmic),
                    number("decay", "0", "1", ScalingType::Auto),
                ],
                categorical_parameter_ranges: vec![CategoricalRange {
                    name: "optimizer".into(),
                    values: vec!["\"sgd\"".into(), "\"adam\"".into()],
                }],
            },
            training_job_early_stopping_type: EarlyStoppingType::Auto,
            tuning_job_completion_criteria: Some(CompletionCriteria {
                target_objective_metric_value: Some(0.1),
                best_objective_not_improving: Some(NotImproving {
                    max_number_of_training_jobs_not_improving: Some(5),
                }),
                convergence_detected: Some(Convergence {
                    complete_on_convergence: "Enabled".into(),
                }),
            }),
            random_seed: Some(7),
        },
        training_job_definition: definition,
        warm_start_config: Some(WarmStart {
            parent_hyper_parameter_tuning_jobs: vec![ParentJob {
                hyper_parameter_tuning_job_name: "yesterday".into(),
            }],
            warm_start_type: WarmStartType::TransferLearning,
        }),
        tags,
    }
}

fn hyperband() -> CreateTuningJob {
    let mut request = tuning();
    let config = &mut request.hyper_parameter_tuning_job_config;
    config.strategy = TuningStrategy::Hyperband;
    config.strategy_config = Some(HyperbandConfig {
        hyperband: Hyperband {
            min_resource: 1,
            max_resource: 27,
        },
    });
    config.training_job_early_stopping_type = EarlyStoppingType::Off;
    request
}

#[test]
fn tuning_jobs_are_valid_by_botocores_model() {
    let mut grid = tuning();
    let config = &mut grid.hyper_parameter_tuning_job_config;
    config.strategy = TuningStrategy::Grid;
    config.resource_limits.max_number_of_training_jobs = None;
    config.parameter_ranges.integer_parameter_ranges.clear();
    config.parameter_ranges.continuous_parameter_ranges.clear();
    config.tuning_job_completion_criteria = None;
    grid.warm_start_config = None;
    for request in [tuning(), hyperband(), grid] {
        request.check().unwrap();
        let request = serde_json::to_value(&request).unwrap();
        let Some(found) = wrong(&[("sagemaker", "CreateHyperParameterTuningJob", request.clone())]) else {
            return;
        };
        assert_eq!(found, "", "{request:#}");
    }
    // The model finds what is wrong.
    for (pointer, value) in [
        ("/HyperParameterTuningJobName", json!("a".repeat(33))),
        ("/HyperParameterTuningJobConfig/Strategy", json!("Tpe")),
        (
            "/HyperParameterTuningJobConfig/ResourceLimits/MaxRuntimeInSeconds",
            json!(119),
        ),
        (
            "/HyperParameterTuningJobConfig/ParameterRanges/ContinuousParameterRanges/0/MinValue",
            json!(0.001),
        ),
        ("/TrainingJobDefinition/Environment", json!({"A": 1})),
    ] {
        let mut request = serde_json::to_value(tuning()).unwrap();
        *request.pointer_mut(pointer).unwrap() = value;
        assert_ne!(
            wrong(&[("sagemaker", "CreateHyperParameterTuningJob", request)]).unwrap(),
            "",
            "{pointer}"
        );
    }
}

#[test]
fn what_sagemaker_would_refuse_of_a_tuning_job_is_named() {
    type Change = fn(&mut CreateTuningJob);
    let cases: [(Change, &str); 20] = [
        (
            |r| r.hyper_parameter_tuning_job_name = "a".repeat(33),
            "HyperParameterTuningJobName: ",
        ),
        (
            |r| r.hyper_parameter_tuning_job_name = "a_b".into(),
            "HyperParameterTuningJobName: 'a_b' is not",
        ),
        (
            |r| r.training_job_definition.role_arn.clear(),
            "TrainingJobDefinition.RoleArn: ",
        ),
        (
            |r| {
                r.training_job_definition.environment =
                    (0..49).map(|n| (format!("A{n}"), String::new())).collect()
            },
            "TrainingJobDefinition.Environment: has 49",
        ),
        (
            |r| r.tags[0].value = "x".repeat(257),
            "TrainingJobDefinition.Tags.team: has 257",
        ),
        (
            |r| {
                r.hyper_parameter_tuning_job_config
                    .hyper_parameter_tuning_job_objective = None
            },
            "HyperParameterTuningJobObjective: is missing",
        ),
        (
            |r| {
                r.training_job_definition
                    .algorithm_specification
                    .metric_definitions
                    .clear()
            },
            "HyperParameterTuningJobObjective.MetricName: 'loss' is none",
        ),
        (
            |r| {
                r.hyper_parameter_tuning_job_config
                    .resource_limits
                    .max_parallel_training_jobs = 0
            },
            "ResourceLimits: has 0",
        ),
        (
            |r| {
                r.hyper_parameter_tuning_job_config
                    .resource_limits
                    .max_runtime_in_seconds = Some(119)
            },
            "ResourceLimits.MaxRuntimeInSeconds: is 119",
        ),
        (
            |r| r.hyper_parameter_tuning_job_config.random_seed = Some(1 << 31),
            "RandomSeed: is more",
        ),
        (
            |r| r.hyper_parameter_tuning_job_config.strategy = TuningStrategy::Hyperband,
            "StrategyConfig: Hyperband wants",
        ),
        (
            |r| {
                *r = hyperband();
                r.hyper_parameter_tuning_job_config.strategy = TuningStrategy::Random;
            },
            "StrategyConfig: is for Hyperband",
        ),
        (
            |r| {
                *r = hyperband();
                r.hyper_parameter_tuning_job_config
                    .strategy_config
                    .as_mut()
                    .unwrap()
                    .hyperband
                    .max_resource = 1;
            },
            "StrategyConfig.HyperbandStrategyConfig: MinResource = 1",
        ),
        (
            |r| {
                *r = hyperband();
                r.hyper_parameter_tuning_job_config
                    .training_job_early_stopping_type = EarlyStoppingType::Auto;
            },
            "TrainingJobEarlyStoppingType: Hyperband stops",
        ),
        (
            |r| r.hyper_parameter_tuning_job_config.strategy = TuningStrategy::Grid,
            "ParameterRanges: a grid",
        ),
        (
            |r| r.hyper_parameter_tuning_job_config.parameter_ranges = ParameterRanges::default(),
            "ParameterRanges: is empty",
        ),
        (
            |r| {
                drop(
                    r.training_job_definition
                        .static_hyper_parameters
                        .insert("lr".into(), "1".into()),
                )
            },
            "ParameterRanges.lr: is given twice",
        ),
        (
            |r| {
                let ranges = &mut r.hyper_parameter_tuning_job_config.parameter_ranges;
                ranges.categorical_parameter_ranges[0].values = vec!["1".into(); 31];
            },
            "ParameterRanges.optimizer: has 31 values",
        ),
        (
            |r| {
                let criteria = &mut r.hyper_parameter_tuning_job_config.tuning_job_completion_criteria;
                criteria.as_mut().unwrap().best_objective_not_improving = Some(NotImproving {
                    max_number_of_training_jobs_not_improving: Some(2),
                });
            },
            "BestObjectiveNotImproving.MaxNumberOfTrainingJobsNotImproving: is 2",
        ),
        (
            |r| {
                r.warm_start_config
                    .as_mut()
                    .unwrap()
                    .parent_hyper_parameter_tuning_jobs
                    .clear()
            },
            "WarmStartConfig: has 0 parents",
        ),
    ];
    for (change, start) in cases {
        let mut request = tuning();
        change(&mut request);
        let message = request.check().unwrap_err().to_string();
        assert!(message.starts_with(start), "{start}: {message}");
    }
}

/// A tuning job's description.
fn described(status: &str) -> Value {
    let request = serde_json::to_value(tuning()).unwrap();
    json!({
        "HyperParameterTuningJobName": "flowers-0123abcd",
        "HyperParameterTuningJobArn": "arn:flowers",
        "HyperParameterTuningJobStatus": status,
        "HyperParameterTuningJobConfig": request["HyperParameterTuningJobConfig"],
        "TrainingJobDefinition": request["TrainingJobDefinition"],
        "CreationTime": 1.6e9,
    })
}

const TIME: Duration = Duration::from_secs(2);

#[test]
fn a_lost_answer_leaves_one_tuning_job() {
    let stub = Stub::start(|request, _| match request.operation.as_str() {
        "CreateHyperParameterTuningJob" => Reply::Closed,
        _ => Reply::Json(200, described("InProgress")),
    });
    assert_eq!(
        stub.client(TIME).create_tuning_job(&tuning()).unwrap(),
        "arn:flowers"
    );
    assert_eq!(
        stub.operations(),
        ["CreateHyperParameterTuningJob", "DescribeHyperParameterTuningJob"]
    );
}

#[test]
fn a_tuning_jobs_name_that_is_taken_is_said() {
    let stub =
        Stub::start(|_, _| Reply::Json(400, json!({"__type": "ResourceInUse", "message": "there is one"})));
    let error = stub.client(TIME).create_tuning_job(&tuning()).unwrap_err();
    assert!(matches!(error, SageMakerError::NameTaken { .. }), "{error}");
    assert!(
        error.to_string().contains("tuning job flowers-0123abcd"),
        "{error}"
    );
}

#[test]
fn where_nobody_answers_it_is_said_what_is_known() {
    let stub = Stub::start(|_, _| Reply::Closed);
    let error = stub
        .client(Duration::from_millis(300))
        .create_tuning_job(&tuning())
        .unwrap_err();
    assert!(matches!(error, SageMakerError::Unclear { .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains("`stokehold tune status flowers-0123abcd --on sagemaker --region eu-west-1`"),
        "{error}"
    );
}

#[test]
fn the_training_jobs_of_a_tuning_job_come_over_several_pages() {
    let stub = Stub::start(|request, before| {
        assert_eq!(request.body["HyperParameterTuningJobName"], "flowers-0123abcd");
        if before == 1 {
            return Reply::Json(
                400,
                json!({"__type": "ThrottlingException", "message": "Rate exceeded"}),
            );
        }
        let page: usize = request.body["NextToken"]
            .as_str()
            .map_or(0, |token| token.parse().unwrap());
        let mut answer = json!({"TrainingJobSummaries": [{
            "TrainingJobName": format!("flowers-{page}"), "TrainingJobArn": "arn", "TrainingJobStatus": "Completed",
            "CreationTime": 1.6e9, "TunedHyperParameters": {"lr": "0.1"}, "ObjectiveStatus": "Succeeded",
            "FinalHyperParameterTuningJobObjectiveMetric": {"MetricName": "loss", "Value": "NaN"},
        }]});
        if page < 2 {
            answer["NextToken"] = json!((page + 1).to_string());
        }
        Reply::Json(200, answer)
    });
    let jobs = stub.client(TIME).tuned_jobs("flowers-0123abcd").unwrap();
    let names: Vec<&str> = jobs.iter().map(|job| job.training_job_name.as_str()).collect();
    assert_eq!(names, ["flowers-0", "flowers-1", "flowers-2"]);
    assert!(jobs[0].objective.as_ref().unwrap().value.is_nan());
}

#[test]
fn a_tuning_job_that_has_ended_stays_as_it_is_when_it_is_stopped() {
    let stub = Stub::start(|request, _| match request.operation.as_str() {
        "StopHyperParameterTuningJob" => Reply::Json(
            400,
            json!({"__type": "ValidationException", "message": "it is Completed"}),
        ),
        _ => Reply::Json(200, described("Completed")),
    });
    stub.client(TIME).stop_tuning_job("flowers-0123abcd").unwrap();
    let stub = Stub::start(|_, _| {
        Reply::Json(
            400,
            json!({"__type": "ResourceNotFound", "message": "there is none"}),
        )
    });
    let error = stub.client(TIME).stop_tuning_job("gone").unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no tuning job gone in eu-west-1; check the name, the region and the account"
    );
}

#[test]
fn moto_has_the_tuning_job_that_was_asked_for() {
    let Some(moto) = Moto::start() else { return };
    let client = moto.client();
    client.require_free_tuning_job("flowers-0123abcd").unwrap();
    let request = tuning();
    let arn = client.create_tuning_job(&request).unwrap();
    assert!(
        arn.ends_with(":hyper-parameter-tuning-job/flowers-0123abcd"),
        "{arn}"
    );
    let job = client.describe_tuning_job("flowers-0123abcd").unwrap();
    assert_eq!(
        job.hyper_parameter_tuning_job_config,
        request.hyper_parameter_tuning_job_config
    );
    assert_eq!(job.warm_start_config, request.warm_start_config);
    assert_eq!(
        job.training_job_definition,
        serde_json::to_value(&request.training_job_definition).unwrap()
    );
    assert_eq!(job.hyper_parameter_tuning_job_status, JobStatus::Completed);
    let taken = client.require_free_tuning_job("flowers-0123abcd").unwrap_err();
    assert!(matches!(taken, SageMakerError::NameTaken { .. }), "{taken}");
}

#[test]
fn the_training_jobs_of_a_followed_tuning_job_are_told_once_when_they_end() {
    let stub = Stub::start(|request, before| match request.operation.as_str() {
        "DescribeHyperParameterTuningJob" => Reply::Json(
            200,
            described(if before < 3 { "InProgress" } else { "Completed" }),
        ),
        _ => {
            let jobs = (0..3).map(|number| {
                let status = if number < before { "Completed" } else { "InProgress" };
                json!({"TrainingJobName": format!("flowers-{number}"), "TrainingJobStatus": status, "CreationTime": 1.6e9})
            });
            Reply::Json(200, json!({"TrainingJobSummaries": jobs.collect::<Vec<_>>()}))
        }
    });
    let mut told = Vec::new();
    let look = Duration::from_millis(20);
    let job = follow_tuning(&stub.client(TIME), "flowers-0123abcd", look, &mut |job| {
        told.push(job.training_job_name.clone());
    });
    assert_eq!(
        job.unwrap().hyper_parameter_tuning_job_status,
        JobStatus::Completed
    );
    assert_eq!(told, ["flowers-0", "flowers-1", "flowers-2"]);
}
