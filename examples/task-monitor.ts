// The monitor as an extension for task definitions of the AWS CDK. `logGroup` and `streamPrefix` are those of the batch's `awsLogs` driver.
import * as cdk from "aws-cdk-lib";
import * as ecs from "aws-cdk-lib/aws-ecs";
import * as iam from "aws-cdk-lib/aws-iam";
import * as logs from "aws-cdk-lib/aws-logs";

export class TaskMonitor implements ecs.ITaskDefinitionExtension {
  constructor(
    private readonly image: ecs.ContainerImage,
    private readonly logGroup: logs.ILogGroup,
    private readonly streamPrefix: string,
  ) {}

  extend(taskDefinition: ecs.TaskDefinition): void {
    const batch = taskDefinition.defaultContainer!;
    const monitor = taskDefinition.addContainer("task-monitor", {
      image: this.image,
      command: ["monitor"],
      essential: false,
      stopTimeout: cdk.Duration.seconds(120),
      memoryReservationMiB: 32,
      memoryLimitMiB: 128,
      user: "65532",
      readonlyRootFilesystem: true,
      environment: { TASK_PROFILER_CONTAINER: batch.containerName },
      logging: ecs.LogDrivers.awsLogs({ logGroup: this.logGroup, streamPrefix: this.streamPrefix }),
    });
    taskDefinition.node.addValidation({ validate: () => refusals(taskDefinition) });
    monitor.addContainerDependencies({ container: batch, condition: ecs.ContainerDependencyCondition.START });
    taskDefinition.addToTaskRolePolicy(
      new iam.PolicyStatement({
        actions: ["logs:PutLogEvents"],
        resources: [`${this.logGroup.logGroupArn.replace(/:\*$/, "")}:log-stream:${this.streamPrefix}/${batch.containerName}/*`],
      }),
    );
  }
}

// What `taskdef add-monitor` refuses, too: Windows, no network, an eleventh container, and a monitor that would use memory of the batch. And a
// monitor that was lost afterwards. The resource as the template has it includes the overrides of its properties.
function refusals(taskDefinition: ecs.TaskDefinition): string[] {
  const resource = taskDefinition.node.defaultChild as any;
  const template: any = cdk.Stack.of(taskDefinition).resolve(resource._toCloudFormation());
  const [{ Properties: definition }] = Object.values<any>(template.Resources);
  const found: string[] = [];
  const places = JSON.stringify(definition.PlacementConstraints ?? []);
  if (/^windows/i.test(definition.RuntimePlatform?.OperatingSystemFamily ?? "") || /ecs\.os-(type|family) *(==|=~|in)[^&|)]*windows/i.test(places)) {
    found.push("The monitor does not work on Windows: profile Linux tasks.");
  }
  if (definition.NetworkMode === "none") {
    found.push("The task's NetworkMode is none, so the monitor reaches nothing: give the task a network.");
  }
  if (definition.ContainerDefinitions.length > 10) {
    found.push("ECS allows 10 containers, with the monitor: remove one.");
  }
  const others = definition.ContainerDefinitions.filter((container: any) => container.Name !== "task-monitor");
  if (others.length + 1 !== definition.ContainerDefinitions.length) {
    found.push("The definition has not one container task-monitor: change the containers before addExtension.");
  }
  const taken = others
    .map((container: any) => container.Memory ?? container.MemoryReservation ?? 0)
    .reduce((sum: number, memory: number) => sum + memory, 0);
  if (Number(definition.Memory) - taken < 32) {
    found.push(`No memory is left for the monitor: the containers may take ${taken} of the task's ${definition.Memory} MiB.`);
  }
  return found;
}
