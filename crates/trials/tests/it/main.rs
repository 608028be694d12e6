//! Studies of jobs as their users have them: run on SageMaker, and drawn.

mod report;
mod sagemaker;
