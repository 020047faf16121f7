// A job queue of AWS Batch on EC2 instances that run one monitor for all their jobs. `userData` is what
// `task-profiler setup batch-instances` prints, such as readFileSync("user-data.txt", "utf8").
import * as cdk from "aws-cdk-lib";
import * as batch from "aws-cdk-lib/aws-batch";
import * as ec2 from "aws-cdk-lib/aws-ec2";
import * as iam from "aws-cdk-lib/aws-iam";
import * as logs from "aws-cdk-lib/aws-logs";
import { Construct } from "constructs";

export class MonitoredQueue extends Construct {
  readonly queue: batch.JobQueue;

  constructor(scope: Construct, id: string, vpc: ec2.IVpc, userData: string) {
    super(scope, id);
    const role = new iam.Role(this, "InstanceRole", {
      assumedBy: new iam.ServicePrincipal("ec2.amazonaws.com"),
      managedPolicies: [iam.ManagedPolicy.fromAwsManagedPolicyName("service-role/AmazonEC2ContainerServiceforEC2Role")],
    });
    const jobs = logs.LogGroup.fromLogGroupName(this, "Jobs", "/aws/batch/job");
    jobs.grant(role, "logs:CreateLogStream", "logs:GetLogEvents", "logs:PutLogEvents");
    const launchTemplate = new ec2.LaunchTemplate(this, "LaunchTemplate", {
      userData: ec2.UserData.custom(userData),
      httpTokens: ec2.LaunchTemplateHttpTokens.REQUIRED,
    });
    const environment = new batch.ManagedEc2EcsComputeEnvironment(this, "ComputeEnvironment", {
      vpc,
      instanceRole: role,
      launchTemplate,
      maxvCpus: 64,
    });
    this.queue = new batch.JobQueue(this, "Queue", { computeEnvironments: [{ computeEnvironment: environment, order: 1 }] });
  }
}
